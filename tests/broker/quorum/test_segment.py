"""Reading from a segment: whole batches, and only as much of the file as they are."""

import random

import pytest

from tests.sim.disk import SimulatedDisk, SimulatedFile
from tidemill.broker.quorum.segment import SPACING_BYTES, MetadataSegment, segment_bases, segment_file
from tidemill.core.errors import CorruptMessage
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord

BASE = 1000


class CountingFile:
    """Counts what is read."""

    def __init__(self, file: SimulatedFile) -> None:
        self.file = file
        self.read_bytes = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        data = self.file.read_at(position, size_bytes)
        self.read_bytes += len(data)
        return data


def segment(rng: random.Random, batches: int) -> tuple[MetadataSegment, CountingFile, list[tuple[int, bytes]]]:
    """A segment, its file, and of each batch the base offset and the bytes."""
    file = CountingFile(SimulatedDisk().root.create("x"))
    made = MetadataSegment(BASE, file)  # type: ignore[arg-type]
    found = []
    offset = BASE
    for _ in range(batches):
        count = rng.choice((1, 1, 2, 5))
        size = rng.choice((1, 50, 300, 3 * SPACING_BYTES))
        data = build_batch([NewRecord(0, None, bytes(size))] * count, base_offset=offset)
        file.file.write_at(made.size, data)
        made.grow(offset, len(data))
        found.append((offset, data))
        offset += count
    return made, file, found


@pytest.mark.parametrize("seed", range(20))
def test_every_offset_leads_to_the_batch_that_has_it(seed: int) -> None:
    rng = random.Random(seed)
    made, file, batches = segment(rng, 120)
    ends = [base for base, _ in batches[1:]] + [batches[-1][0] + 1]
    position = 0
    largest = max(len(data) for _, data in batches)
    for (base, data), end in zip(batches, ends, strict=True):
        for offset in range(base, end):
            file.read_bytes = 0
            assert made.batch_at(offset) == (position, base)
            assert file.read_bytes <= SPACING_BYTES + largest
        position += len(data)


@pytest.mark.parametrize("seed", range(20))
def test_reads_are_of_whole_batches_and_at_least_one(seed: int) -> None:
    rng = random.Random(seed)
    made, file, batches = segment(rng, 120)
    largest = max(len(data) for _, data in batches)
    for _ in range(50):
        number = rng.randrange(len(batches))
        max_bytes = rng.choice((0, 1, 100, 1000, 20_000, 10**6))
        file.read_bytes = 0
        data = made.read(batches[number][0], max_bytes)
        assert file.read_bytes <= SPACING_BYTES + 2 * largest + max(61, max_bytes)
        expected = batches[number][1]
        for _, following in batches[number + 1 :]:
            if len(expected) + len(following) > max_bytes:
                break
            expected += following
        assert data == expected


@pytest.mark.parametrize("seed", range(20))
def test_after_a_cut_it_is_as_if_the_rest_had_never_been(seed: int) -> None:
    rng = random.Random(seed)
    made, file, batches = segment(rng, 60)
    keep = rng.randrange(60)
    made.cut(sum(len(data) for _, data in batches[:keep]))
    offset = batches[keep][0]
    for count in (3, 1, 2):
        data = build_batch([NewRecord(1, None, b"anew" * 500)] * count, base_offset=offset)
        file.file.write_at(made.size, data)
        made.grow(offset, len(data))
        batches[keep:] = [*batches[keep:][:0], (offset, data)]
        keep += 1
        offset += count
    assert made.read(BASE, 10**7) == b"".join(data for _, data in batches)
    for base, data in batches:
        assert made.read(base, 0) == data


def test_a_length_that_cannot_be_is_an_error_and_no_endless_loop() -> None:
    made, file, batches = segment(random.Random(1), 10)
    file.file.write_at(8, b"\xff\xff\xff\xff")
    for offset in (BASE, batches[1][0]):
        with pytest.raises(CorruptMessage, match="segment 1000 is damaged at byte 0"):
            made.read(offset, 10**6)


def test_names_of_segments() -> None:
    root = SimulatedDisk().root
    for name in (segment_file(0), segment_file(42), "42.log", f"{segment_file(7)}.part", "x.log"):
        root.create(name)
    assert segment_file(42) == "00000000000000000042.log"
    assert segment_bases(root) == [0, 42]
