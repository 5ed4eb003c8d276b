"""The stored offsets of one source connector, read from their topic

A task that starts reads the offsets topic to the end it had at that moment, so it sees everything its predecessor
managed to store. The topic is compacted, so this is bounded by the number of source partitions there are, not by time.

The key bytes of every partition are kept: whoever rewrites a partition must use the very bytes it was stored under,
or compaction would keep both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tidemill.connect.api import NotConnected, SourceOffset, SourcePartition
from tidemill.connect.stores import decode_offset, encode_offset_key, partition_identity
from tidemill.connect.tasks.kafka_clients import explain, kafka_error
from tidemill.core.runtime.clock import Clock

READ_BATCH = 1_000
METADATA_S = 1.0
CONNECT_MS = 20  # librdkafka may let half of that pass before it connects for the first time; its own are 100
POLL_S = 0.05  # for the next message, be it one about an end

_HOPELESS = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._AUTHENTICATION}
"""Errors that waiting does not cure; all others the client retries by itself until the deadline."""


@dataclass(slots=True)
class StoredOffset:
    """An offset and the key bytes it stands under."""

    key: bytes
    offset: SourceOffset | None


class SourceOffsets:
    """Offsets by source partition, two spellings of one map being one partition."""

    def __init__(self, connector: str) -> None:
        self.connector = connector
        self._by_identity: dict[bytes, StoredOffset] = {}

    def __len__(self) -> int:
        return len(self._by_identity)

    def get(self, partition: SourcePartition) -> SourceOffset | None:
        """The last stored offset of a partition."""
        stored = self._by_identity.get(partition_identity(partition))
        return None if stored is None else stored.offset

    def key(self, partition: SourcePartition) -> bytes:
        """The key to store a partition's offset under."""
        stored = self._by_identity.get(partition_identity(partition))
        return encode_offset_key(self.connector, partition) if stored is None else stored.key

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Take in a record of the topic, or one that was just written to it."""
        record = decode_offset(key, value)
        if record is None or key is None or record.connector != self.connector:
            return
        self._by_identity[partition_identity(record.partition)] = StoredOffset(key, record.offset)


def load_offsets(
    connector: str,
    topic: str,
    client_config: Mapping[str, str],
    *,
    clock: Clock,
    timeout_s: float,
    stopping: Callable[[], bool] = lambda: False,
) -> SourceOffsets:
    """Read the offsets of `connector`; raises NotConnected when the end is not reached in time, or when stopping."""
    offsets = SourceOffsets(connector)
    consumer = Consumer(
        {
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 1,  # an empty partition shows its end with the first answer
            "reconnect.backoff.ms": CONNECT_MS,
            "log_level": 0,  # it tries that often: what is wrong is told once, by the error that ends this
            **client_config,
            "group.id": f"tidemill-offsets-{connector}",  # librdkafka wants a name; nothing is ever committed under it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        _Reader(consumer, topic, clock, clock.monotonic() + timeout_s, stopping).read(offsets)
    except KafkaException as error:
        what = f"cannot read the stored offsets from topic {topic}"
        raise NotConnected(explain(kafka_error(error), what, reading=True)) from error
    finally:
        consumer.close()
    return offsets


@dataclass(slots=True)
class _Reader:
    """Reads a topic to the end it has now, in short steps between which it can be stopped."""

    consumer: Consumer
    topic: str
    clock: Clock
    deadline: float
    stopping: Callable[[], bool]

    def read(self, offsets: SourceOffsets) -> None:
        waiting = self._partitions()
        self.consumer.assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING) for partition in waiting])
        while waiting:
            self._check("its end was not reached in time")
            # A batch that does not fill up is waited for to the last moment, so only what is there is asked for.
            for message in self.consumer.consume(1, POLL_S) + self.consumer.consume(READ_BATCH, 0):
                error = message.error()
                if error is None:
                    offsets.take(message.key(), message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(message.partition() or 0)
                elif error.fatal() or error.code() in _HOPELESS:
                    raise KafkaException(error)

    def _partitions(self) -> set[int]:
        """The topic's partitions; none when nobody has stored anything yet."""
        while True:
            try:
                metadata = self.consumer.list_topics(self.topic, timeout=METADATA_S).topics[self.topic]
            except KafkaException as error:
                self._check(kafka_error(error).str())
                continue
            if metadata.error is None:
                return set(metadata.partitions)
            if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return set()
            if not metadata.error.retriable():
                raise KafkaException(metadata.error)
            self._check(metadata.error.str())

    def _check(self, trouble: str) -> None:
        if self.stopping():
            raise NotConnected("stopped while reading the stored offsets")
        if self.clock.monotonic() > self.deadline:
            raise NotConnected(f"cannot read the stored offsets from topic {self.topic}: {trouble}")
