"""Stored segments of the exact offset map

The topic `tidemill-offset-map.<source>.internal` lives on the target, has one partition and is compacted. One record
holds one segment (at most `RUNS_PER_SEGMENT` runs) of one partition's map; a null value deletes it.

    key    INT16 version=0, STRING source topic, INT32 partition, INT32 segment
    value  INT16 version=0, UUID source topic id, UUID target topic id, STRING target topic, VARINT count,
           INT64 source, INT64 target of the first run,
           then per further run VARINT target delta, VARINT (source delta - target delta),
           in version 1 then VARINT count, and per leader epoch of the source (`tidemill.mirror.lineage`)
           VARINT epoch + 1, INT64 start, INT64 end

The last segment has version 1 where the source's leaders are known, so that no older mirror goes on with the map and
leaves them as they were.

Strings are written as in `tidemill.mirror.formats`, VARINT is unsigned LEB128. The topic ids let a mirror notice that a
topic was deleted and created again under its name, which no offset can tell.
"""

import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemill.core.types import ZERO_UUID
from tidemill.mirror.formats import FormatError, Reader, pack_string
from tidemill.mirror.lineage import SPANS_MAX, Span
from tidemill.mirror.offsets import RUNS_PER_SEGMENT, Run

_VERSION = 0
_WITH_SPANS = 1
KEY_BYTES_SHOWN = 64  # of one that cannot be read


class NewerVersion(FormatError):
    """Nothing is damaged: this program is too old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKey:
    """Which segment of which partition."""

    topic: str  # name on the source
    partition: int
    segment: int

    def encode(self) -> bytes:
        """Key bytes."""
        return struct.pack(">h", _VERSION) + pack_string(self.topic) + struct.pack(">ii", self.partition, self.segment)

    @classmethod
    def decode(cls, key: bytes) -> "SegmentKey":
        """Read one back."""
        reader = Reader(key)
        _check_version(reader.int16())
        return cls(topic=reader.string(), partition=reader.int32(), segment=reader.int32())


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentValue:
    """The runs of a segment, and the topics whose offsets they map."""

    source_topic_id: uuid.UUID
    target_topic_id: uuid.UUID
    target_topic: str
    runs: tuple[Run, ...]
    spans: tuple[Span, ...] = ()

    def encode(self) -> bytes:
        """Value bytes."""
        parts = [
            struct.pack(">h", _WITH_SPANS if self.spans else _VERSION),
            self.source_topic_id.bytes,
            self.target_topic_id.bytes,
            pack_string(self.target_topic),
            _varint(len(self.runs)),
        ]
        previous: Run | None = None
        for run in self.runs:
            if previous is None:
                parts.append(struct.pack(">qq", run.source, run.target))
            else:
                advance = run.target - previous.target
                parts.append(_varint(advance) + _varint(run.source - previous.source - advance))
            previous = run
        if self.spans:
            parts.append(_varint(len(self.spans)))
            parts += [_varint(span.epoch + 1) + struct.pack(">qq", span.start, span.end) for span in self.spans]
        return b"".join(parts)

    @classmethod
    def decode(cls, value: bytes) -> "SegmentValue":
        """Read one back."""
        reader = Reader(value)
        version = reader.int16()
        _check_version(version, _WITH_SPANS)
        ids = uuid.UUID(bytes=reader.take(16)), uuid.UUID(bytes=reader.take(16))
        target_topic, count = reader.string(), reader.varint()
        if not 0 < count <= RUNS_PER_SEGMENT:
            raise FormatError(f"a segment of {count} runs; 1 to {RUNS_PER_SEGMENT} are possible")
        runs = [Run(reader.int64(), reader.int64())]
        while len(runs) < count:
            advance, skipped = reader.varint(), reader.varint()
            runs.append(Run(runs[-1].source + advance + skipped, runs[-1].target + advance))
        spans = _read_spans(reader) if version == _WITH_SPANS else ()
        return cls(
            source_topic_id=ids[0], target_topic_id=ids[1], target_topic=target_topic, runs=tuple(runs), spans=spans
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMap:
    """Everything the map topic says about one partition."""

    source_topic_id: uuid.UUID
    target_topic_id: uuid.UUID
    target_topic: str
    segments: Mapping[int, tuple[Run, ...]]
    spans: Mapping[int, tuple[Span, ...]]  # by segment; what counts is those of the last one that is joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What of a stored map applies to the topics as they are now."""

    segments: Mapping[int, tuple[Run, ...]]
    segments_stored: int  # numbers below this may be in the topic
    source_recreated: bool = False
    spans: Mapping[int, tuple[Span, ...]] = field(default_factory=dict)


def adopt(stored: StoredMap | None, source_topic_id: uuid.UUID, target_topic_id: uuid.UUID) -> Adoption:
    """Judge a stored map by topic ids (a zero id tells nothing).

    A new target topic starts over: its map is void. A new source topic behind an old target does not fit at all.
    """
    if stored is None:
        return Adoption(segments={}, segments_stored=0)
    known = max(stored.segments) + 1
    if _differ(stored.target_topic_id, target_topic_id):
        return Adoption(segments={}, segments_stored=known)
    recreated = _differ(stored.source_topic_id, source_topic_id)
    return Adoption(segments=stored.segments, segments_stored=known, source_recreated=recreated, spans=stored.spans)


def _differ(one: uuid.UUID, other: uuid.UUID) -> bool:
    return ZERO_UUID not in (one, other) and one != other


class Replay:
    """The topic's (key, value) records, taken in order, as the latest map per source (topic, partition)."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, int], dict[int, SegmentValue]] = {}

    def take(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Fold some more records in; a segment of transactions takes a millisecond. Raises FormatError.

        A value that cannot be read is a segment without runs: it concerns one partition, and who joins them says so.
        A key that cannot be read may concern any, unless its row is deleted.
        """
        for raw_key, raw_value in records:
            try:
                key = SegmentKey.decode(raw_key)
            except FormatError as error:
                if raw_value is None:
                    continue
                raise FormatError(_no_segment(raw_key, error)) from error
            segments = self._values.setdefault((key.topic, key.partition), {})
            if raw_value is None:
                segments.pop(key.segment, None)
            else:
                segments[key.segment] = _readable(raw_value)

    def maps(self) -> dict[tuple[str, int], StoredMap]:
        """What the records say."""
        return {partition: _stored(segments) for partition, segments in self._values.items() if segments}


def _no_segment(raw_key: bytes, error: FormatError) -> str:
    shown = raw_key[:KEY_BYTES_SHOWN].hex() + ("..." if len(raw_key) > KEY_BYTES_SHOWN else "")
    return (
        f"the key {shown} (hexadecimal) is no segment's: {error}; "
        "if no newer mirror is in use here, delete that row: produce a record with this key and a null value"
    )


def _readable(raw_value: bytes) -> SegmentValue:
    try:
        return SegmentValue.decode(raw_value)
    except NewerVersion:
        raise
    except FormatError:
        return SegmentValue(source_topic_id=ZERO_UUID, target_topic_id=ZERO_UUID, target_topic="", runs=())


def replay(records: Iterable[tuple[bytes, bytes | None]]) -> dict[tuple[str, int], StoredMap]:
    """Fold all records at once."""
    folded = Replay()
    folded.take(records)
    return folded.maps()


def _stored(segments: dict[int, SegmentValue]) -> StoredMap:
    newest = segments[max(segments)]
    return StoredMap(
        source_topic_id=newest.source_topic_id,
        target_topic_id=newest.target_topic_id,
        target_topic=newest.target_topic,
        segments={number: value.runs for number, value in sorted(segments.items())},
        spans={number: value.spans for number, value in segments.items()},
    )


def _read_spans(reader: Reader) -> tuple[Span, ...]:
    count = reader.varint()
    if not 0 < count <= SPANS_MAX:
        raise FormatError(f"{count} leader epochs; 1 to {SPANS_MAX} are possible")
    return tuple(Span(reader.varint() - 1, reader.int64(), reader.int64()) for _ in range(count))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _check_version(version: int, newest: int = _VERSION) -> None:
    if not _VERSION <= version <= newest:
        raise NewerVersion(
            f"offset map version {version}, this program reads up to {newest}: was it written by a newer one?"
        )
