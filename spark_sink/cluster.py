"""What the driver asks the cluster: partitions, their ids and their ends

One `Cluster` per reader, on librdkafka's admin client, so that every security setting works that librdkafka knows. It
never joins a group and never makes a topic by asking about it. Questions are repeated as `fetchOffset.numRetries` says.

A cluster that has never answered is more likely a wrong address than one that restarts, so it gets seconds rather than
minutes, and what librdkafka hears of its connections (refused, no such host, wrong password) becomes the reason given.

Not here: what to do with the ends (`offsets`), and reading records (`fetch`).
"""

import concurrent.futures
import itertools
import re
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its stubs do not export it

from tidemill.spark_sink.core_api import ZERO_UUID, SystemClock, TopicPartition
from tidemill.spark_sink.offsets import SourceStopped, StreamOffset
from tidemill.spark_sink.options import EARLIEST, LATEST, OptionError, Position, Selection, SourceOptions

REQUEST_TIMEOUT_MS = 30_000  # request.timeout.ms of Kafka's clients
FIRST_TIMEOUT_S, FIRST_PATIENCE_S = 5.0, 10.0  # one question, and all of them, to a cluster that has never answered
_HEARD_INTERVAL_S = 0.1
_REFUSALS = frozenset(
    {
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
    }
)
_STATE = re.compile(r"^\S+: (?=Connect to )| \(after \d+ms in state \w+(?:, .*)?\)$")  # librdkafka's own affairs
_CONSUMER_ONLY = ("isolation.level", "group.id", "max.partition.fetch.bytes", "fetch.max.bytes", "check.crcs")
_NO_TIMESTAMP = -1  # what ListOffsets answers when no record is that young

_LATEST, _EARLIEST = OffsetSpec.latest(), OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # untyped there

T = TypeVar("T")


class ClusterUnreachable(RuntimeError):
    """The cluster did not answer; the message names the addresses and the reason."""


class ClusterRefused(SourceStopped):
    """The cluster answered, and does not let this program do what it asks for."""


class UnknownTopic(RuntimeError):
    """A subscribed topic does not exist."""


class Cluster:
    """Questions to one cluster."""

    def __init__(self, options: SourceOptions, timeout_ms: int | None = None) -> None:
        self._options = options
        self._pause = threading.Event()  # never set: waits between attempts
        settings: dict[str, Any] = {name: value for name, value in options.client.items() if name not in _CONSUMER_ONLY}
        settings.setdefault("log_level", "0")
        self._patience_s = (timeout_ms or int(settings.get("socket.timeout.ms", REQUEST_TIMEOUT_MS))) / 1000
        self._clock = SystemClock()
        self._has_answered = False
        self._heard: KafkaError | None = None  # of the connections, during the question at hand
        self._hopeless = False  # no use in waiting for the answer to it
        # Weakly: in a cycle with its client this would go only when Python collects garbage.
        hear = weakref.WeakMethod(self._hear)
        settings["error_cb"] = lambda error: None if (alive := hear()) is None else alive(error)
        try:
            self._clients = [AdminClient(settings)]
        except KafkaException as error:
            raise OptionError(f"a kafka.* option is not accepted: {_reason(error)}") from None
        weakref.finalize(self, _let_go, self._clients).atexit = False

    @property
    def _admin(self) -> AdminClient:
        return self._clients[0]

    def _hear(self, error: KafkaError) -> None:
        """librdkafka says something about its connections."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self._hopeless = self._hopeless or not self._has_answered
            return
        self._heard = error
        self._hopeless = self._hopeless or error.name() in _REFUSALS

    @property
    def _timeout_s(self) -> float:
        return self._patience_s if self._has_answered else min(self._patience_s, FIRST_TIMEOUT_S)

    def partitions(self, selection: Selection) -> StreamOffset:
        """The selected partitions that exist, with their topics' ids; offsets are 0. Raises UnknownTopic."""
        topics = sorted(self._topics(selection))
        if not topics:
            return StreamOffset()
        described = self._ask(lambda: self._describe(topics))
        offsets = {}
        for name, topic in described.items():
            for part in topic.partitions:
                if not selection.assign or part.id in selection.assign[name]:
                    offsets[TopicPartition(name, part.id)] = 0
        for name, numbers in selection.assign.items():
            for number in numbers:
                if TopicPartition(name, number) not in offsets:
                    raise UnknownTopic(f"topic {name!r} has no partition {number}")
        ids = {name: _uuid(topic.topic_id) for name, topic in described.items()}
        return StreamOffset(offsets=offsets, topic_ids=ids)

    def topic_id(self, topic: str) -> uuid.UUID:
        """A topic's id, zero where the brokers are older than ids; raises UnknownTopic."""
        return _uuid(self._ask(lambda: self._describe([topic]))[topic].topic_id)

    def _topics(self, selection: Selection) -> Iterable[str]:
        if selection.pattern is None:
            return selection.subscribe or tuple(selection.assign)
        pattern = re.compile(selection.pattern)
        found = self._ask(lambda: self._admin.list_topics(timeout=self._timeout_s).topics)
        return [name for name in found if pattern.fullmatch(name)]

    def _describe(self, topics: list[str]) -> dict[str, Any]:
        futures = self._admin.describe_topics(TopicCollection(topics), request_timeout=self._timeout_s)
        found = {}
        for name, future in futures.items():
            try:
                found[name] = self._result(future)
            except KafkaException as error:
                if error.args[0].name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
                    raise UnknownTopic(f"topic {name!r} does not exist at {self._options.bootstrap}") from None
                raise
        return found

    def ends(self, selection: Selection) -> StreamOffset:
        """The end of every selected partition: the last stable offset when reading committed records only."""
        return self._at(self.partitions(selection), _LATEST)

    def resolve(self, position: Position) -> StreamOffset:
        """Offsets for `startingOffsets` and its kin; raises OptionError for a partition that is not there."""
        existing = self.partitions(self._options.selection)
        if position.timestamp_ms is not None:
            return self._by_timestamp(existing, dict.fromkeys(existing.offsets, position.timestamp_ms))
        named = position.timestamps_ms or position.offsets
        given = {
            TopicPartition(topic, partition): number
            for topic, numbers in named.items()
            for partition, number in numbers.items()
        }
        for partition in given:
            if partition not in existing.offsets:
                raise OptionError(f"an offset is given for {partition}, which is not among the selected partitions")
        if position.timestamps_ms:
            return self._by_timestamp(existing, {p: given[p] for p in existing.offsets if p in given}, position.default)
        symbols = {p: given.get(p, position.default) for p in existing.offsets}
        return self._by_symbol(existing, symbols)

    def located(self, symbols: StreamOffset) -> StreamOffset:
        """The same partitions, with -1 and -2 replaced by the offsets that these are now."""
        return self._by_symbol(symbols, symbols.offsets)

    def _by_symbol(self, existing: StreamOffset, symbols: Mapping[TopicPartition, int]) -> StreamOffset:
        offsets = dict(symbols)
        for symbol, spec in ((EARLIEST, _EARLIEST), (LATEST, _LATEST)):
            wanted = [partition for partition, offset in symbols.items() if offset == symbol]
            offsets |= self._list(wanted, lambda _, spec=spec: spec)  # type: ignore[misc]  # bound as default
        return StreamOffset(offsets=offsets, topic_ids=existing.topic_ids)

    def _by_timestamp(
        self, existing: StreamOffset, timestamps: Mapping[TopicPartition, int], default: int = LATEST
    ) -> StreamOffset:
        found = self._list(list(timestamps), lambda partition: OffsetSpec.for_timestamp(timestamps[partition]))
        missing = [partition for partition, offset in found.items() if offset == _NO_TIMESTAMP]
        if missing and self._options.strategy == "error":
            raise OptionError(
                f"partition {missing[0]} has no record at or after timestamp {timestamps[missing[0]]}; set "
                "startingOffsetsByTimestampStrategy=latest to start such partitions at their end"
            )
        symbols = dict.fromkeys(existing.offsets, default) | found | dict.fromkeys(missing, LATEST)
        return self._by_symbol(existing, symbols)

    def _at(self, existing: StreamOffset, spec: OffsetSpec) -> StreamOffset:
        return StreamOffset(offsets=self._list(list(existing.offsets), lambda _: spec), topic_ids=existing.topic_ids)

    def _list(
        self, partitions: list[TopicPartition], spec: Callable[[TopicPartition], OffsetSpec]
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        level = IsolationLevel.READ_COMMITTED if self._options.read_committed else IsolationLevel.READ_UNCOMMITTED

        topics = sorted({partition.topic for partition in partitions})
        attempts = itertools.count()

        def ask() -> dict[TopicPartition, int]:
            if next(attempts):  # librdkafka asks with the leader and the epoch that it knows, and learns no new ones
                self._describe(topics)
            asked = {ClientTopicPartition(*partition): spec(partition) for partition in partitions}
            futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=self._timeout_s)
            return {TopicPartition(key.topic, key.partition): self._offset(future) for key, future in futures.items()}

        return self._ask(ask)

    def _offset(self, future: "concurrent.futures.Future[Any]") -> int:
        """What ListOffsets says; -1001 and no error is librdkafka's word that nothing came."""
        offset: int = self._result(future).offset
        if offset < _NO_TIMESTAMP:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no answer to ListOffsets came"))
        return offset

    def publish(self, group_id: str, position: StreamOffset) -> None:
        """Commit `position` for a group, so that lag tools see the query; nothing ever reads it back."""
        partitions = [ClientTopicPartition(*partition, offset) for partition, offset in position.offsets.items()]
        request = [ConsumerGroupTopicPartitions(group_id, partitions)]
        self._ask(lambda: [self._result(each) for each in self._admin.alter_consumer_group_offsets(request).values()])

    def _result(self, future: "concurrent.futures.Future[Any]") -> Any:
        """What a future comes to, given up early when librdkafka says that it will come to nothing."""
        while True:
            try:
                failure = future.exception(timeout=_HEARD_INTERVAL_S)
            except concurrent.futures.TimeoutError:
                self._admin.poll(0)
                if self._hopeless:
                    raise KafkaException(self._heard or KafkaError(KafkaError._ALL_BROKERS_DOWN)) from None
                continue
            if failure is None:
                return future.result()
            # Another one: the future's own would have this frame in it, hence the future, and stay until Python looks
            # for cycles, with the client.
            raise type(failure)(*failure.args)

    def _ask(self, question: Callable[[], T]) -> T:
        retries, pause_s = self._options.retries, self._options.retry_interval_ms / 1000
        first_until = self._clock.monotonic() + max(FIRST_PATIENCE_S, retries * pause_s)
        attempt = 0
        while True:
            self._heard, self._hopeless = None, False
            try:
                answer = question()
                self._has_answered = True
                return answer
            except UnknownTopic:
                self._has_answered = True
                raise
            except KafkaException as error:
                self._admin.poll(0)
                attempt += 1
                self._give_up_if(error, attempt > retries, self._clock.monotonic() >= first_until)
            self._pause.wait(pause_s)

    def _give_up_if(self, error: KafkaException, tried_enough: bool, waited_enough: bool) -> None:
        where, reason = self._options.bootstrap, _reason(error)
        if error.args[0].name() in _REFUSALS:
            raise ClusterRefused(f"{where}: the cluster refuses this client: {reason}") from None
        if tried_enough or (waited_enough and not self._has_answered):
            heard = reason if self._heard is None else _reason(KafkaException(self._heard))
            raise ClusterUnreachable(f"{where}: the cluster does not answer: {heard}") from None


def _let_go(clients: list[AdminClient]) -> None:
    """Drop the only reference to a client in a thread of its own.

    That waits for the name look-ups the client has begun, which may take longer than a job has to stop; and librdkafka
    aborts the process when it happens in one of the client's own threads.
    """
    threading.Thread(target=clients.clear, name="let go of a cluster", daemon=True).start()


def _reason(error: KafkaException) -> str:
    first = error.args[0] if error.args else error
    return _STATE.sub("", str(first.str() if hasattr(first, "str") else first))


def _uuid(topic_id: Any) -> uuid.UUID:
    """A librdkafka topic id; brokers older than topic ids have none."""
    if topic_id is None:
        return ZERO_UUID
    high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return uuid.UUID(int=((high & (2**64 - 1)) << 64) | (low & (2**64 - 1)))
