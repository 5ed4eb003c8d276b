"""Produce (0) from a producer that was seen before: nothing is decoded

versions: 3-13, as in `produce`

All bytes of a Produce request except the correlation id and the batch repeat as long as a producer writes to the same
partition. A connection therefore remembers, by these bytes, which log they led to and what the response looks like; the
batch itself is judged by the log as always. What is remembered holds for as long as the partition is led as it was and
the same rules say who may write: when either becomes different (its topic deleted or made anew, another leader) it is
looked up again, and what is remembered of other partitions stays. Settings that the log obeys are read from the log
each time.

What is unusual about a request is left to the general handler, which then says what is wrong with it: acks=0,
transactional ids, unknown topics. A request with several batches goes to `produce_several`.
"""

import struct
from collections.abc import Callable, Sequence

from tidemill.broker.admission import Outcome, find_place
from tidemill.broker.dispatch import BrokerServices, Chunks, Exchange, Peer
from tidemill.broker.handlers.leader_hints import HINTS_FROM, LeaderHints
from tidemill.broker.handlers.produce_answer import (
    AskedTopic,
    answer_exchange,
    answer_later,
    named,
    produce_response,
)
from tidemill.broker.handlers.produce_several import SeveralBatches
from tidemill.broker.log.appended import AppendResult
from tidemill.broker.quotas import UNLIMITED
from tidemill.broker.replication.replica import ACKS_ALL, ACKS_LEADER, Replica
from tidemill.core.errors import KafkaError
from tidemill.core.types import new_tuple
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import RequestHeader, decode_request_header, encode_response
from tidemill.core.wire.messages.produce import ProduceResponse
from tidemill.core.wire.produce_frame import (
    FLEXIBLE_FROM,
    LOG_START_OFFSET_FROM,
    PREFIX_AT,
    ProduceFrame,
    read_produce_frame,
    records_span,
)

ENTRIES_MAX = 256
"""Per connection; a producer that writes to more partitions in turn is looked up again each time round."""

PREFIX_BYTES_MAX = 512
"""Of one that is remembered: a topic's name is 249 at most, and a client id of the rest is long."""

_PRODUCE = int(ApiKey.PRODUCE)
_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AT = 4
_MARKS = (0x0102030405060708, 0x1112131415161718, 0x2122232425262728)  # occur in no response by themselves


def _start_reader(prefix_end: int) -> "Callable[[memoryview, int], tuple[int, bytes]]":
    """`(frame, _CORRELATION_ID_AT) -> (correlation id, prefix)`, which raises struct.error where there is less."""
    return struct.Struct(f">i{prefix_end - PREFIX_AT}s").unpack_from


class KnownPrefix:
    """Where requests with a certain prefix go."""

    __slots__ = (
        "_asked", "_broker", "_head", "_pack", "_peer", "_size", "_tail", "_with_start",
        "acks", "authorizer", "led_as", "place", "read_start",
    )  # fmt: skip

    def __init__(self, broker: BrokerServices, peer: Peer, place: Replica, frame: ProduceFrame, version: int) -> None:
        self._broker = broker
        self._peer = peer if version >= HINTS_FROM else None
        self.authorizer = broker.authorizer
        self.place = place
        self.led_as = place.image
        self.acks = frame.acks
        self.read_start = _start_reader(frame.prefix_end)
        topic, ((index, _, _),) = frame.topics[0]
        self._asked: tuple[AskedTopic] = ((*named(topic, version), (index,)),)
        self._with_start = version >= LOG_START_OFFSET_FROM
        self._take_apart(version)

    def _take_apart(self, version: int) -> None:
        """Let the general codec encode a response, and find the three numbers in it that change."""
        base_offset, append_time, log_start = _MARKS
        stored = AppendResult(base_offset, base_offset, append_time, log_start, duplicate=False)
        response = b"".join(encode_response(ApiKey.PRODUCE, version, 0, self.response([stored])))
        numbers = struct.pack(">3q", *_MARKS) if self._with_start else struct.pack(">2q", *_MARKS[:2])
        at = response.rindex(numbers)
        self._size, self._head, self._tail = response[:4], response[8:at], response[at + len(numbers) :]
        count = len(numbers) // 8
        self._pack = struct.Struct(f">4si{len(self._head)}s{count}q{len(self._tail)}s").pack

    def respond(self, correlation_id: int, base_offset: int, append_time_ms: int, log_start_offset: int) -> bytes:
        """The framed response to a batch that was stored."""
        if self._with_start:
            return self._pack(
                self._size, correlation_id, self._head, base_offset, append_time_ms, log_start_offset, self._tail
            )
        return self._pack(self._size, correlation_id, self._head, base_offset, append_time_ms, self._tail)

    def response(self, outcomes: Sequence[Outcome]) -> ProduceResponse:
        """The response to a batch of any outcome."""
        hints = None if self._peer is None else LeaderHints(self._broker, self._peer)
        return produce_response(self._asked, (self.place,), outcomes, hints)

    @staticmethod
    def error_response(known: "KnownPrefix", error: KafkaError, _api_version: int) -> ProduceResponse:
        """What a stored batch gets that is not acknowledged after all."""
        return known.response([error])


class ProduceMemo:
    """The prefixes that one connection uses in one version: a `tidemill.broker.dispatch.Shortcut`."""

    __slots__ = (
        "_admit", "_broker", "_flexible", "_known", "_now_ms", "_peer", "_prefix_end", "_read_start", "_several",
        "_version",
    )  # fmt: skip

    def __init__(self, broker: BrokerServices, version: int, peer: Peer) -> None:
        self._broker = broker
        self._peer = peer
        self._admit = broker.admission.admit
        self._now_ms = broker.clock.now_ms
        self._version = version
        self._flexible = version >= FLEXIBLE_FROM
        self._known: dict[bytes, KnownPrefix] = {}
        self._prefix_end = PREFIX_AT  # of the last request with one batch, ...
        self._read_start = _start_reader(PREFIX_AT)  # ... and what is before it
        self._several = SeveralBatches(broker, version, peer)

    def __call__(self, frame: memoryview) -> Exchange | None:
        """Serve a request with a batch for a partition that there is; None if it is another."""
        broker = self._broker
        try:
            correlation_id, prefix = self._read_start(frame, _CORRELATION_ID_AT)
        except struct.error:  # it is shorter than the last one
            known = None
        else:
            known = self._known.get(prefix)
        if known is None or known.led_as is not known.place.image or known.authorizer is not broker.authorizer:
            found = read_produce_frame(frame, self._version)
            if found is None or found.acks not in (ACKS_LEADER, ACKS_ALL):
                return None
            if not found.has_one_batch:
                return self._several(frame, found, self._header(frame))
            known = self._learn(frame, found)
            if known is None:
                return None
            (correlation_id,) = _CORRELATION_ID.unpack_from(frame, _CORRELATION_ID_AT)
        span = records_span(frame, self._prefix_end, flexible=self._flexible)
        if span is None:
            return None
        start, end = span
        outcome = self._admit(known.place, frame[start:end], known.acks, self._now_ms(), self._version)
        header = new_tuple(RequestHeader, (_PRODUCE, self._version, correlation_id, None))
        exchange = Exchange(header, known, KnownPrefix.error_response)
        if broker.quotas is not UNLIMITED:
            exchange.header, _ = decode_request_header(frame)  # with the client id
            exchange.pending = answer_later((known.place,), (outcome,), known.acks, known.response)
            return exchange
        if type(outcome) is not AppendResult:
            answer_exchange(exchange, (known.place,), (outcome,), known.acks, known.response)
            return exchange
        base_offset, last_offset, append_time_ms, log_start_offset, _ = outcome
        chunks: Chunks = [known.respond(correlation_id, base_offset, append_time_ms, log_start_offset)]
        replica = known.place
        if last_offset < replica.high_watermark:
            exchange.chunks = chunks
            return exchange
        alone = replica.machine.alone
        pending = replica.pending(last_offset, known.acks, at_once=True)
        if pending is None:
            exchange.chunks = chunks
        elif alone or known.acks == ACKS_ALL:
            exchange.after, exchange.due, exchange.by_others = pending, chunks, not alone
        else:
            exchange.pending = answer_later((replica,), (outcome,), known.acks, known.response)
        return exchange

    def _header(self, frame: memoryview) -> RequestHeader:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame, _CORRELATION_ID_AT)
        return new_tuple(RequestHeader, (_PRODUCE, self._version, correlation_id, None))

    def _learn(self, frame: memoryview, found: ProduceFrame) -> KnownPrefix | None:
        """What is known, or can be found out, about the prefix of `frame`."""
        authorizer = self._broker.authorizer
        prefix = bytes(frame[PREFIX_AT : found.prefix_end])
        known = self._known.get(prefix)
        if known is None or known.led_as is not known.place.image or known.authorizer is not authorizer:
            known = self._look_up(found) if len(prefix) <= PREFIX_BYTES_MAX else None
            if known is None:
                return None
            if prefix not in self._known and len(self._known) >= ENTRIES_MAX:
                self._known.clear()
            self._known[prefix] = known
        self._prefix_end, self._read_start = found.prefix_end, known.read_start
        return known

    def _look_up(self, found: ProduceFrame) -> KnownPrefix | None:
        topic, ((index, _, _),) = found.topics[0]
        try:
            place = find_place(self._broker, self._peer, *named(topic, self._version), index)
        except KafkaError:
            return None
        return KnownPrefix(self._broker, self._peer, place, found, self._version)
