"""What is counted: whole answers once, own bytes, and what is on its way."""

from tidemill.mirror.memory import Memory


def test_a_small_batch_counts_with_the_answer_it_pins() -> None:
    memory = Memory(bytes_max=16_000_000)
    frame = memory.open(16_000_000, holders=2)
    assert memory.is_full
    assert not memory.release(frame), "somebody else still holds bytes of it"
    assert memory.is_full
    assert memory.release(frame)
    assert memory.held_bytes == 0


def test_an_answer_for_nobody_is_not_counted() -> None:
    memory = Memory()
    assert memory.open(1000, holders=0) == 0
    assert memory.held_bytes == 0


def test_everything_adds_up() -> None:
    memory = Memory(bytes_max=100)
    memory.open(30, holders=1)
    memory.own_bytes = 30
    memory.in_flight_bytes = 39
    assert (memory.held_bytes, memory.is_full) == (99, False)
    memory.in_flight_bytes += 1
    assert memory.is_full
