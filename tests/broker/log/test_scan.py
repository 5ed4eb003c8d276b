"""Walking over a log file and finding the way again"""

import random

import pytest

from tests.broker.log.log_world import batch
from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.scan import BadBatch, resync, walk, walk_bytes
from tidemill.core.records.batch import stamp
from tidemill.core.runtime.disk import File


def log_file(counts: list[int], value_bytes: int = 10) -> tuple[File, bytes, list[int]]:
    """A file of stamped batches, its bytes and the position of each batch."""
    data, offset, positions = bytearray(), 0, []
    for count in counts:
        piece = bytearray(batch(count, value_bytes=value_bytes))
        stamp(piece, 0, offset, 0)
        positions.append(len(data))
        data += piece
        offset += count
    file = SimulatedDisk().root.create("log")
    file.write_at(0, bytes(data))
    return file, bytes(data), positions


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("value_bytes", [10, 3000, 700_000])
def test_a_walk_visits_every_batch(verify: bool, value_bytes: int) -> None:
    file, data, positions = log_file([1, 2, 1, 3], value_bytes)
    found = list(walk(file, 0, len(data), verify=verify, due=0))
    assert [position for position, _ in found] == positions
    assert [header.base_offset for _, header in found] == [0, 1, 3, 4]
    assert [position for position, _ in walk_bytes(data, 0, due=0)] == positions
    inner = data[positions[1] :]
    assert [position for position, _ in walk_bytes(inner, positions[1])] == positions[1:]


def test_a_walk_stops_at_what_it_cannot_believe() -> None:
    file, data, positions = log_file([1, 2, 1])
    with pytest.raises(BadBatch, match="where 5 was due") as raised:
        list(walk(file, 0, len(data), verify=False, due=5))
    assert (raised.value.position, raised.value.due) == (0, 5)
    for end in range(positions[2] + 1, len(data)):
        with pytest.raises(BadBatch) as raised:
            list(walk(file, 0, end, verify=False))
        assert raised.value.position == positions[2]
    file.write_at(positions[1] + 70, b"\xff")
    assert len(list(walk(file, 0, len(data), verify=False))) == 3
    with pytest.raises(BadBatch, match="CRC") as raised:
        list(walk(file, 0, len(data), verify=True))
    assert raised.value.position == positions[1]


def test_a_gap_is_only_allowed_where_it_is_said_to_be() -> None:
    file, data, positions = log_file([1, 2, 1])
    file.write_at(positions[2], (9).to_bytes(8, "big"))
    assert [header.base_offset for _, header in walk(file, 0, len(data), verify=True, dense=False)] == [0, 1, 9]
    with pytest.raises(BadBatch, match="where 3 was due"):
        list(walk(file, 0, len(data), verify=True))


def test_the_batch_whose_header_misled_the_walk_is_blamed() -> None:
    file, data, positions = log_file([1, 2, 1])
    file.write_at(positions[1] + 26, b"\x07")  # its last offset delta
    with pytest.raises(BadBatch) as raised:
        list(walk(file, 0, len(data), verify=False, due=0))
    assert (raised.value.position, raised.value.due) == (positions[1], 1)


def test_resync_finds_the_next_whole_batch_wherever_it_is() -> None:
    rng = random.Random(3)
    for garbage in (1, 16, 61, 5000, 1_048_576 - 30, 1_048_576 + 5):
        piece = bytearray(batch(2))
        stamp(piece, 0, 40, 0)
        junk = rng.randbytes(garbage)
        file = SimulatedDisk().root.create("log")
        file.write_at(0, junk + bytes(piece) + b"tail")
        found = resync(file, 0, garbage + len(piece) + 4, 10, 1000)
        assert found is not None
        assert (found[0], found[1].base_offset) == (garbage, 40)
        assert resync(file, 0, garbage + len(piece) - 1, 10, 1000) is None
        assert resync(file, 0, garbage + len(piece), 41, 1000) is None
        assert resync(file, 0, garbage + len(piece), 10, 41) is None
