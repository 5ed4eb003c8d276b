"""Produce (0) with several batches: read where it was received

versions: 3-13, as in `produce`

The Java producer packs the batches of all partitions that one broker leads into one request, and seldom the same ones
twice. What repeats are the partitions: a connection remembers where each of them is for as long as it is led as it was
and the same rules hold about who may write, and no message object is made of the request or, when all goes well, of the
response.

Nothing is appended before every partition of the request has been found; if one is not, the general handler says why. A
batch that is then refused has its error in the response, beside the others.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidemill.broker.admission import Outcome, find_place
from tidemill.broker.dispatch import BrokerServices, Chunks, Exchange, Peer
from tidemill.broker.handlers.leader_hints import HINTS_FROM, LeaderHints
from tidemill.broker.handlers.produce_answer import (
    AskedTopic,
    Outcomes,
    Places,
    all_failed,
    answer_exchange,
    answer_later,
    named,
    produce_response,
)
from tidemill.broker.log.appended import AppendResult
from tidemill.broker.quorum.image import PartitionImage
from tidemill.broker.quotas import UNLIMITED
from tidemill.broker.replication.replica import Replica
from tidemill.core.errors import KafkaError
from tidemill.core.wire.framing import RequestHeader, decode_request_header
from tidemill.core.wire.messages.produce import ProduceResponse
from tidemill.core.wire.produce_frame import ProduceFrame, Stored, encode_stored

PLACES_MAX = 4096
"""Per connection; more than a producer writes to at one broker, and at most two megabytes of memory."""

_UNKNOWN: Final = (None, None)


class SeveralBatches:
    """The partitions that one connection writes to in one version."""

    __slots__ = ("_admit", "_authorizer", "_broker", "_peer", "_places", "_version")

    def __init__(self, broker: BrokerServices, version: int, peer: Peer) -> None:
        self._broker = broker
        self._peer = peer
        self._authorizer = broker.authorizer
        self._admit = broker.admission.admit
        self._version = version
        self._places: dict[tuple[bytes, int], tuple[Replica, PartitionImage | None]] = {}  # how it is led beside it

    def __call__(self, frame: memoryview, found: ProduceFrame, header: RequestHeader) -> Exchange | None:
        """Serve the request whose parts are `found`, acks being 1 or all; None leaves it to the general handler."""
        places = self._look_through(found)
        if places is None:
            return None
        admit, acks = self._admit, found.acks
        now_ms, version = self._broker.clock.now_ms(), self._version
        outcomes: list[Outcome | asyncio.Future[Outcome]] = []
        for topic in found.topics:
            for _, start, end in topic.spans:
                outcomes.append(admit(places[len(outcomes)], frame[start:end], acks, now_ms, version))
        exchange = Exchange(header, found, _all_failed)
        if self._broker.quotas is not UNLIMITED:
            exchange.header, _ = decode_request_header(frame)  # with the client id
            exchange.pending = answer_later(places, outcomes, acks, self._response(found, places))
            return exchange
        stored = _stored(found, outcomes)
        if stored is None:
            self._answer_otherwise(exchange, found, places, outcomes)
            return exchange
        after: asyncio.Future[None] | None = None
        for place, outcome in zip(places, outcomes, strict=True):
            last_offset = outcome.last_offset  # type: ignore[union-attr]  # all are stored
            if last_offset >= place.high_watermark and (after is None or not place.machine.alone):
                pending = place.pending(last_offset, acks)  # others wait for the same round
                if pending is not None and not place.machine.alone:
                    self._answer_otherwise(exchange, found, places, outcomes)
                    return exchange
                after = after or pending
        chunks: Chunks = [encode_stored(version, header.correlation_id, stored)]
        if after is None:
            exchange.chunks = chunks
        else:
            exchange.after, exchange.due = after, chunks
        return exchange

    def _answer_otherwise(self, exchange: Exchange, found: ProduceFrame, places: Places, outcomes: Outcomes) -> None:
        """Where some batch is refused, or its turn has not come, or others have to have it too."""
        answer_exchange(exchange, places, outcomes, found.acks, self._response(found, places))

    def _response(self, found: ProduceFrame, places: Places) -> Callable[[Sequence[Outcome]], ProduceResponse]:
        version = self._version

        def respond(settled: Sequence[Outcome]) -> ProduceResponse:
            hints = LeaderHints(self._broker, self._peer) if version >= HINTS_FROM else None
            return produce_response(_asked(found, version), places, settled, hints)

        return respond

    def _look_through(self, found: ProduceFrame) -> list[Replica] | None:
        """A place for every batch; None if there is none for one of them."""
        known, authorizer = self._places, self._broker.authorizer
        if authorizer is not self._authorizer:
            self._authorizer = authorizer
            known.clear()
        places: list[Replica] = []
        for topic, spans in found.topics:
            for index, _, _ in spans:
                place, led_as = known.get((topic, index), _UNKNOWN)
                if place is None or place.image is not led_as:
                    place = self._look_up(topic, index)
                    if place is None:
                        return None
                places.append(place)
        return places

    def _look_up(self, topic: bytes, index: int) -> Replica | None:
        try:
            place = find_place(self._broker, self._peer, *named(topic, self._version), index)
        except KafkaError:
            return None
        if (topic, index) not in self._places and len(self._places) >= PLACES_MAX:
            self._places.clear()
        self._places[topic, index] = place, place.image
        return place


def _stored(found: ProduceFrame, outcomes: Outcomes) -> list[tuple[bytes, list[Stored]]] | None:
    """Per topic where its batches are; None if one of them is not stored."""
    rows: list[tuple[bytes, list[Stored]]] = []
    number = 0
    for topic, spans in found.topics:
        stored: list[Stored] = []
        for index, _, _ in spans:
            outcome = outcomes[number]
            if type(outcome) is not AppendResult:
                return None
            base_offset, _, append_time_ms, log_start_offset, _ = outcome
            stored.append((index, base_offset, append_time_ms, log_start_offset))
            number += 1
        rows.append((topic, stored))
    return rows


def _asked(found: ProduceFrame, version: int) -> Iterator[AskedTopic]:
    for topic, spans in found.topics:
        name, topic_id = named(topic, version)
        yield name, topic_id, [index for index, _, _ in spans]


def _all_failed(found: ProduceFrame, error: KafkaError, version: int) -> ProduceResponse:
    """What is answered when batches that were stored do not become durable after all."""
    return all_failed(_asked(found, version), error)
