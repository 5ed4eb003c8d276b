"""Writers: one program for each client library, that asks for records all the time and writes down what it is told

`python -m tests.faults.writers LIBRARY NAME BOOTSTRAP HISTORY RATE TOPIC:PARTITIONS...` goes on until its standard
input ends, and then waits for what is still unanswered. Records go to all partitions in turn.
"""

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.faults.history import Log, Place, places, value

FLUSH_WITHIN_S = 120.0
TICK_S = 0.02


class Ending:
    """Set once standard input has ended."""

    def __init__(self) -> None:
        self.event = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        sys.stdin.buffer.read()
        self.event.set()


class Pace:
    """How many records are due; what was missed while a client was stuck is not made up for."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._then = time.monotonic()
        self._owed = 0.0

    def due(self) -> int:
        """So many, since the last call."""
        now = time.monotonic()
        self._owed = min(self._owed + (now - self._then) * self._rate, self._rate / 10 + 1)
        self._then = now
        whole = int(self._owed)
        self._owed -= whole
        return whole


def librdkafka(name: str, bootstrap: str, log: Log, rate: float, targets: Sequence[Place]) -> int:
    """confluent-kafka, idempotent; returns how many were never answered."""
    from confluent_kafka import KafkaError, Message, Producer

    fatal: list[str] = []

    def error(what: KafkaError) -> None:
        log.reason("e", what)
        if what.fatal():
            fatal.append(str(what))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": 600_000,
            "error_cb": error,
            "client.id": name,
        }
    )
    log.put("writer", name, 1)
    ending, pace, number = Ending(), Pace(rate), itertools.count()

    def told(which: int, place: Place, error: KafkaError | None, message: Message) -> None:
        if error is None:
            offset = message.offset()  # none where a repeated batch was too old for the broker to remember its own
            log.put("a", *place, which, -1 if offset is None else offset)
        else:
            log.reason("x", *place, which, error)

    while not ending.event.is_set() and not fatal:
        for _ in range(pace.due()):
            which = next(number)
            place = targets[which % len(targets)]
            log.put("w", *place, which)
            producer.produce(
                place[0],
                value(name, which),
                partition=place[1],
                on_delivery=partial(told, which, place),
            )
        producer.poll(TICK_S)
        log.tick()
    left = producer.flush(FLUSH_WITHIN_S)
    if fatal:
        sys.exit(f"the client has given up: {fatal[0]}")  # and its history has no end
    return left


def aiokafka(name: str, bootstrap: str, log: Log, rate: float, targets: Sequence[Place]) -> int:
    """aiokafka with acks=all; returns how many were never answered."""
    return asyncio.run(_aiokafka(name, bootstrap, log, rate, targets))


async def _aiokafka(name: str, bootstrap: str, log: Log, rate: float, targets: Sequence[Place]) -> int:
    from aiokafka import AIOKafkaProducer
    from aiokafka.structs import RecordMetadata

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", linger_ms=5, request_timeout_ms=20_000, client_id=name
    )
    await producer.start()
    log.put("writer", name, 0)
    ending, pace, number = Ending(), Pace(rate), itertools.count()
    waiting: set[asyncio.Future[RecordMetadata]] = set()

    def told(which: int, place: Place, answer: "asyncio.Future[RecordMetadata]") -> None:
        waiting.discard(answer)
        if error := answer.exception():
            log.reason("x", *place, which, repr(error))
        else:
            log.put("a", *place, which, answer.result().offset)

    async def send(which: int, place: Place) -> None:
        log.put("w", *place, which)
        try:
            answer = await producer.send(place[0], value(name, which), partition=place[1])
        except Exception as error:  # whatever the library tells the application is what is asked about
            log.reason("x", *place, which, repr(error))
            return
        waiting.add(answer)
        answer.add_done_callback(lambda done: told(which, place, done))

    while not ending.event.is_set():
        for _ in range(pace.due()):
            which = next(number)
            await send(which, targets[which % len(targets)])
        log.tick()
        await asyncio.sleep(TICK_S)
    if waiting:
        await asyncio.wait(waiting, timeout=FLUSH_WITHIN_S)
    left = len(waiting)
    try:
        await asyncio.wait_for(producer.stop(), 30)
    except TimeoutError:
        log.reason("e", "stop() did not return within 30 s")
    return left


LIBRARIES = {"librdkafka": librdkafka, "aiokafka": aiokafka}


def main() -> None:
    """Parse the command line and write."""
    library, name, bootstrap, history, rate, *topics = sys.argv[1:]
    counted = [(topic, int(count)) for topic, _, count in (each.partition(":") for each in topics)]
    log = Log(Path(history))
    log.close(LIBRARIES[library](name, bootstrap, log, float(rate), places(counted)))


if __name__ == "__main__":
    main()
