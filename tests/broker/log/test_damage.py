"""What of a segment is damaged, how far it reaches, and who hears of it"""

import pytest

from tests.broker.log.segment_world import BASE, fill
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.damage import Damage, DamagedParts, extent_of_damage
from tidemill.broker.log.index import OffsetIndex
from tidemill.broker.log.scan import BadBatch
from tidemill.broker.log.segment import Segment
from tidemill.core.errors import CorruptMessage


@pytest.fixture
def segment() -> Segment:
    return Segment.create(SimulatedDisk().root, BASE)


def test_found_bytes_are_checked_once_and_a_read_ends_before_damage(segment: Segment) -> None:
    written = fill(segment, 12)
    segment.take_index_writes()()
    size = len(written[0])
    segment.file.write_at(5 * size + 100, b"\x00\xff\x00\xff")
    found = Segment.open(segment.directory, BASE)
    assert bytes(found.read(BASE, 10**6, found.size_bytes)) == b"".join(written[:5])
    with pytest.raises(CorruptMessage):
        found.read(BASE + 10, 10**6, found.size_bytes)
    assert bytes(found.read(BASE + 12, 10**6, found.size_bytes)) == b"".join(written[6:])
    assert [(damage.position, damage.end, damage.next_offset) for damage in found.damaged] == [
        (5 * size, 6 * size, BASE + 12)
    ]
    assert [header.base_offset for _, header in found.batches()] == [
        BASE + 2 * number for number in range(12) if number != 5
    ]


def test_damage_ends_at_the_next_whole_batch_or_index_entry_or_not_at_all(segment: Segment) -> None:
    size = len(fill(segment, 4, index_interval_bytes=10**6)[0])
    none = OffsetIndex()
    entry = OffsetIndex()
    entry.append(7, 3 * size)

    def extent(number: int, index: OffsetIndex) -> tuple[int, int, int]:
        bad = BadBatch(number * size, "as if", BASE + 2 * number)
        damage = extent_of_damage(
            segment.file, segment.size_bytes, bad, index, bad.due + 1, BASE + 1000, segment.next_offset
        )
        return damage.position, damage.end, damage.next_offset

    assert extent(1, none) == (size, 2 * size, BASE + 4)
    assert extent(1, entry) == (size, 2 * size, BASE + 4)
    assert extent(2, entry) == (2 * size, 3 * size, BASE + 6), "the search ends at the entry, which says the same"
    assert extent(3, none) == (3 * size, 4 * size, BASE + 8), "the rest of the file"


def test_an_offset_that_may_have_been_in_a_damaged_part_is_refused() -> None:
    parts = DamagedParts()
    parts.add(Damage(position=100, end=200, next_offset=14))
    assert [parts.at(position) is not None for position in (99, 100, 199, 200)] == [False, True, True, False]
    parts.refuse(14, 0, 1000, "the log")
    parts.refuse(13, 150, 1000, "the log")  # the search for it began behind the damage
    for offset, size_bytes in ((13, 1000), (14, 200)):
        with pytest.raises(CorruptMessage, match="the log: a corrupt batch at position 100"):
            parts.refuse(offset, 0, size_bytes, "the log")


def test_a_batch_that_an_index_file_led_to_wrongly_is_no_damage(segment: Segment) -> None:
    written = fill(segment, 12)
    segment.take_index_writes()()
    index = segment.directory.open(f"{BASE:020d}.index")
    index.write_at(4, (77).to_bytes(4, "big"))
    found = Segment.open(segment.directory, BASE)
    for number, data in enumerate(written):
        assert bytes(found.read(BASE + 2 * number, 1, found.size_bytes)) == data
    assert found.damaged == []
