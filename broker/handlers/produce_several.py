"""Produce (0) with several batches: read where it was received

versions: 3-13, as in `produce`

The Java producer packs the batches of all partitions that one broker leads into one request, and seldom the same ones
twice. What repeats are the partitions: a connection remembers where each of them is, for one image of the cluster, and
no message object is made of the request or, when all goes well, of the response.

Nothing is appended before the whole request has been looked through; what is unusual in it is left to the general
handler, as in `produce_memo`. A batch that the log then refuses has its error in the response, beside the others.
"""

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import NamedTuple

from tidemill.broker.dispatch import BrokerServices, Chunks, Exchange
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.partitions import find_log, find_topic
from tidemill.broker.quorum.image import ClusterImage
from tidemill.core.errors import KafkaError
from tidemill.core.records.batch import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL_BIT
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import RequestHeader, encode_response
from tidemill.core.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tidemill.core.wire.primitives import uuid_from_bytes
from tidemill.core.wire.produce_frame import TOPIC_ID_FROM, ProduceFrame, Stored, encode_stored

PLACES_MAX = 4096
"""Per connection; more than a producer writes to at one broker, and at most two megabytes of memory."""

_ACKS_ALL = -1


class Place(NamedTuple):
    """Where the batches for one partition go."""

    log: PartitionLog
    leader_epoch: int
    in_sync: int


Rows = list[tuple[bytes, list[Stored]]]
"""Per topic where its batches are; of one that was refused only the index means anything."""


class SeveralBatches:
    """The partitions that one connection writes to in one version."""

    __slots__ = ("_broker", "_image", "_places", "_version")

    def __init__(self, broker: BrokerServices, version: int) -> None:
        self._broker = broker
        self._version = version
        self._image: ClusterImage | None = None
        self._places: dict[tuple[bytes, int], Place] = {}

    def __call__(self, frame: memoryview, found: ProduceFrame, header: RequestHeader) -> Exchange | None:
        """Serve the request whose parts are `found`, acks being 1 or all; None leaves it to the general handler."""
        places = self._look_through(frame, found)
        if places is None:
            return None
        now_ms, version = self._broker.clock.now_ms(), self._version
        last_offsets: list[tuple[PartitionLog, int]] = []
        refused: dict[int, KafkaError] = {}
        rows: Rows = []
        number = 0
        for topic, spans in found.topics:
            stored: list[Stored] = []
            for index, start, end in spans:
                log, leader_epoch, _ = places[number]
                try:
                    base_offset, last_offset, append_time_ms, log_start_offset, _ = log.append(
                        frame[start:end], now_ms=now_ms, leader_epoch=leader_epoch, produce_version=version
                    )
                except KafkaError as error:
                    refused[number] = error
                    stored.append((index, -1, -1, -1))
                else:
                    stored.append((index, base_offset, append_time_ms, log_start_offset))
                    last_offsets.append((log, last_offset))
                number += 1
            rows.append((topic, stored))
        exchange = Exchange(header, found, _all_failed)
        if refused:
            response = _some_refused(version, rows, refused)
            chunks = encode_response(ApiKey.PRODUCE, version, header.correlation_id, response)
        else:
            chunks = [encode_stored(version, header.correlation_id, rows)]
        _answer_when_durable(exchange, chunks, last_offsets)
        return exchange

    def _look_through(self, frame: memoryview, found: ProduceFrame) -> list[Place] | None:
        """A place for every batch; None if something about one of them is unusual."""
        image = self._broker.controller.image
        if image is not self._image:
            self._image = image
            self._places.clear()
        known = self._places
        needs_all = found.acks == _ACKS_ALL
        places: list[Place] = []
        for topic, spans in found.topics:
            for index, start, end in spans:
                place = known.get((topic, index))
                if place is None:
                    place = self._look_up(topic, index)
                if (
                    place is None
                    or end - start < HEADER_BYTES
                    or frame[start + ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT
                    or (needs_all and place.in_sync < place.log.config.min_insync_replicas)
                ):
                    return None
                places.append(place)
        return places

    def _look_up(self, topic: bytes, index: int) -> Place | None:
        try:
            found = find_topic(self._broker, *named(topic, self._version))
            partition_log, partition = find_log(self._broker, found, index)
        except KafkaError:
            return None
        if found.internal:
            return None
        if len(self._places) >= PLACES_MAX:
            self._places.clear()
        place = Place(partition_log, partition.leader_epoch, len(partition.isr))
        self._places[topic, index] = place
        return place


def named(topic: bytes, version: int) -> tuple[str, uuid.UUID]:
    """Name and topic id as a request has them; the response says them back."""
    if version >= TOPIC_ID_FROM:
        return "", uuid_from_bytes(topic)
    return topic.decode(), ZERO_UUID


def failed_partition(index: int, error: KafkaError) -> PartitionProduceResponse:
    """The answer to a batch that is not stored."""
    return PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, error_message=str(error) or None
    )


def _answer_when_durable(exchange: Exchange, chunks: Chunks, last_offsets: list[tuple[PartitionLog, int]]) -> None:
    """At once, or after the round of the flusher that covers everything appended up to now."""
    for log, last_offset in last_offsets:
        pending = log.pending(last_offset)
        if pending is not None:
            exchange.after, exchange.due = pending, chunks
            return
    exchange.chunks = chunks


def _some_refused(version: int, rows: Rows, refused: Mapping[int, KafkaError]) -> ProduceResponse:
    """What is answered when some batches, by their numbers in the request, were refused and the others stored."""
    batches = itertools.chain.from_iterable(stored for _, stored in rows)
    answers = (
        failed_partition(index, refused[number])
        if number in refused
        else PartitionProduceResponse(
            index=index, base_offset=base_offset, log_append_time_ms=append_time_ms, log_start_offset=log_start_offset
        )
        for number, (index, base_offset, append_time_ms, log_start_offset) in enumerate(batches)
    )
    return _response(version, rows, answers)


def _all_failed(found: ProduceFrame, error: KafkaError, version: int) -> ProduceResponse:
    """What is answered when batches that were stored do not become durable after all."""
    answers = (failed_partition(index, error) for topic in found.topics for index, _, _ in topic.spans)
    return _response(version, found.topics, answers)


def _response(
    version: int, topics: Iterable[tuple[bytes, Sized]], answers: Iterator[PartitionProduceResponse]
) -> ProduceResponse:
    """The `answers` to all batches in turn, by topic."""
    responses = []
    for topic, batches in topics:
        name, topic_id = named(topic, version)
        of_topic = tuple(itertools.islice(answers, len(batches)))
        responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=of_topic))
    return ProduceResponse(responses=tuple(responses))
