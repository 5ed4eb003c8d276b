"""Readers: members of groups that poll all the time and write down what they see; and the last reader of everything

`python -m tests.faults.readers LIBRARY GROUP NAME BOOTSTRAP HISTORY TOPIC:PARTITIONS...` goes on until its standard
input ends. Offsets are committed every second, after the records before them were written down.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.faults.history import Log, Place, words
from tests.faults.writers import Ending

COMMIT_EVERY_S = 1.0
SESSION_MS = 10_000
LAST_READER_MAX_S = 120.0


def librdkafka(group: str, name: str, bootstrap: str, log: Log, topics: Sequence[str]) -> None:
    """confluent-kafka, which commits by itself what was given to the application."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    def committed(error: KafkaError | None, found: list[TopicPartition]) -> None:
        for each in found:
            if error is None and each.error is None and each.offset >= 0:
                log.put("c", each.topic, each.partition, each.offset)

    def told(kind: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        def tell(_consumer: Consumer, found: list[TopicPartition]) -> None:
            for each in found:
                log.put(kind, each.topic, each.partition)

        return tell

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": int(COMMIT_EVERY_S * 1000),
            "session.timeout.ms": SESSION_MS,
            "on_commit": committed,
            "check.crcs": True,
            "error_cb": lambda error: log.reason("e", error),
        }
    )
    log.put("reader", group, name)
    consumer.subscribe(list(topics), on_assign=told("+"), on_revoke=told("-"), on_lost=told("-"))
    ending = Ending()
    while not ending.event.is_set():
        log.tick()
        message = consumer.poll(0.2)
        if message is None:
            continue
        if error := message.error():
            log.reason("e", error)
        else:
            log.put("r", message.topic(), message.partition(), message.offset(), words(message.value()))
    consumer.close()


def aiokafka(group: str, name: str, bootstrap: str, log: Log, topics: Sequence[str]) -> None:
    """aiokafka, whose commits are its application's."""
    asyncio.run(_aiokafka(group, name, bootstrap, log, topics))


async def _aiokafka(group: str, name: str, bootstrap: str, log: Log, topics: Sequence[str]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

    positions: dict[TopicPartition, int] = {}

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            await commit()
            positions.clear()
            for each in revoked:
                log.put("-", each.topic, each.partition)

        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            for each in assigned:
                log.put("+", each.topic, each.partition)

    async def commit() -> None:
        offsets = dict(positions)
        if not offsets:
            return
        try:
            await consumer.commit(offsets)
        except Exception as error:  # the next one holds the same and more, or another member's reader does
            log.reason("e", f"commit: {error!r}")
            return
        for each, offset in offsets.items():
            log.put("c", each.topic, each.partition, offset)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, client_id=name, auto_offset_reset="earliest",
        enable_auto_commit=False, session_timeout_ms=SESSION_MS, request_timeout_ms=20_000,
    )  # fmt: skip
    log.put("reader", group, name)
    consumer.subscribe(list(topics), listener=Listener())
    await consumer.start()
    ending, committed_at = Ending(), time.monotonic()
    while not ending.event.is_set():
        try:
            log.tick()
            found = await consumer.getmany(timeout_ms=200)
        except Exception as error:  # whatever the library tells the application is written down
            log.reason("e", repr(error))
            await asyncio.sleep(0.2)
            continue
        for each, messages in found.items():
            for message in messages:
                log.put("r", each.topic, each.partition, message.offset, words(message.value))
            positions[each] = messages[-1].offset + 1
        if time.monotonic() - committed_at > COMMIT_EVERY_S:
            committed_at = time.monotonic()
            await commit()
    try:
        await asyncio.wait_for(consumer.stop(), 30)
    except TimeoutError:
        log.reason("e", "stop() did not return within 30 s")


LIBRARIES = {"librdkafka": librdkafka, "aiokafka": aiokafka}


def everything(bootstrap: str, history: Path, wanted: Sequence[Place]) -> dict[Place, int]:
    """Read those partitions from their beginnings to the ends that they have now; returns the ends.

    Raises TimeoutError where that takes longer than LAST_READER_MAX_S.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "last-reader", "enable.auto.commit": False, "check.crcs": True}
    )
    log = Log(history)
    deadline = time.monotonic() + LAST_READER_MAX_S
    try:
        ends = {place: consumer.get_watermark_offsets(TopicPartition(*place), 30)[1] for place in wanted}
        unread = {place for place, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(*place, 0) for place in unread])
        for place, offset, data in _records(consumer, deadline):
            if place in unread and offset < ends[place]:
                log.put("r", *place, offset, words(data))
            if offset >= ends[place] - 1:
                unread.discard(place)
            if not unread:
                return ends
        raise TimeoutError(f"{sorted(unread)} were not read to their ends within {LAST_READER_MAX_S:.0f} s")
    finally:
        log.close()
        consumer.close()


def _records(consumer: object, deadline: float) -> Iterator[tuple[Place, int, bytes | None]]:
    while time.monotonic() < deadline:
        for message in consumer.consume(2000, 1.0):  # type: ignore[attr-defined]
            if message.error() is None:
                yield (message.topic(), message.partition()), message.offset(), message.value()


def main() -> None:
    """Parse the command line and read."""
    library, group, name, bootstrap, history, *topics = sys.argv[1:]
    log = Log(Path(history))
    LIBRARIES[library](group, name, bootstrap, log, [each.partition(":")[0] for each in topics])
    log.close()


if __name__ == "__main__":
    main()
