"""Segments on a simulated disk, written by producers and cleaned again and again"""

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st

from tests.broker.log.log_world import NOW_MS
from tests.sim.disk import SimulatedDirectory, SimulatedDisk
from tidemill.broker.log.compaction import Rules, SourceSegment, compact, fill
from tidemill.broker.log.offset_map import OffsetMap
from tidemill.broker.log.segment import Segment
from tidemill.broker.log.segment_files import CLEANED_SUFFIX, segment_name
from tidemill.core.records.batch import BatchView, stamp, stamp_append_time
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, Record, decode_records

RETENTION_MS = 1000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class NewBatch(NamedTuple):
    records: list[tuple[int, bytes | None]]  # key number, value
    codec: str
    producer_id: int  # -1 is none
    append_time: bool


BATCHES = st.builds(
    NewBatch,
    st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.binary(max_size=5))), min_size=1, max_size=5),
    st.sampled_from(CODECS),
    st.integers(-1, 2),
    st.booleans(),
)
LOGS = st.lists(st.lists(BATCHES, min_size=1, max_size=4), min_size=1, max_size=4)


@dataclass
class World:
    """The segments; what is left of them is read as a consumer would."""

    directory: SimulatedDirectory = field(default_factory=lambda: SimulatedDisk().root)
    sources: list[SourceSegment] = field(default_factory=list)
    offset: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    producers: dict[int, int] = field(default_factory=dict)

    def write(self, batches: list[NewBatch]) -> None:
        """One more segment."""
        segment = Segment.create(self.directory, self.offset)
        for new in batches:
            sequence = self.sequences.get(new.producer_id, 0) if new.producer_id >= 0 else -1
            records = [
                NewRecord(NOW_MS + 7 * self.offset - number, b"k%d" % key, value, (("h", b"x"),))
                for number, (key, value) in enumerate(new.records)
            ]
            data = bytearray(
                build_batch(
                    records,
                    codec=new.codec,
                    producer_id=new.producer_id,
                    producer_epoch=0 if sequence >= 0 else -1,
                    base_sequence=sequence,
                )
            )
            if new.append_time:
                stamp_append_time(data, 0, NOW_MS + 5)
            stamp(data, 0, self.offset, 3)
            last_offset = self.offset + len(records) - 1
            if sequence >= 0:
                self.sequences[new.producer_id] = sequence + len(records)
                self.producers[new.producer_id] = last_offset
            segment.append(data, BatchView(data).max_timestamp, last_offset, 4096)
            self.offset = last_offset + 1
        segment.file.sync()
        segment.close()
        self.directory.sync()
        self.sources.append(SourceSegment(base_offset=segment.base_offset, size_bytes=segment.size_bytes, dense=True))

    def clean(self, first_dirty: int, now_ms: int, budget_bytes: int = 1 << 20) -> int:
        """Clean everything into one segment; returns how far the map reached."""
        covered, cleaned = self.compact(first_dirty, now_ms, budget_bytes)
        name = segment_name(cleaned.base_offset)
        self.directory.rename(name + CLEANED_SUFFIX, name)
        source = SourceSegment(base_offset=cleaned.base_offset, size_bytes=cleaned.size_bytes, dense=False)
        self.sources = [source]
        cleaned.close()
        return covered

    def compact(self, first_dirty: int, now_ms: int, budget_bytes: int = 1 << 20) -> tuple[int, Segment]:
        """Write the segment that is to replace everything."""
        offset_map = OffsetMap(budget_bytes, keys_expected=self.offset)
        dirty = [
            source
            for source, end in zip(self.sources, [*(s.base_offset for s in self.sources[1:]), self.offset], strict=True)
            if end > first_dirty
        ]
        covered = fill(self.directory, dirty, (first_dirty, self.offset), offset_map, lambda _size: None)
        rules = Rules(now_ms=now_ms, delete_retention_ms=RETENTION_MS, covered_offset=covered, producers=self.producers)
        return covered, compact(self.directory, self.sources, offset_map, rules, 4096, lambda _size: None)

    def batches(self) -> list[BatchView]:
        """Every batch of every segment."""
        found = []
        for source in self.sources:
            data = self.directory.read(segment_name(source.base_offset))[: source.size_bytes]
            at = 0
            while at < len(data):
                view = BatchView(data, at)
                assert view.verify_crc()
                found.append(view)
                at += view.size_bytes
        return found

    def records(self) -> list[Record]:
        """Every record of every segment."""
        return [record for view in self.batches() for record in decode_records(view)]


def newest(records: list[Record]) -> dict[bytes | None, Record]:
    """The last record of every key."""
    return {record.key: record for record in records}
