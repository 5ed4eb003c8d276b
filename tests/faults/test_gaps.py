"""Gaps between acknowledgements, and partitions that are stuck"""

from tests.faults.gaps import Broken, alone, by_kind, longest, of_faults, quiet_s, starting, stuck, well

A, B = ("a", 0), ("b", 0)
EVERY_SECOND = [float(second) for second in range(101)]


def broken(kind: str, begin: float, end: float) -> Broken:
    return Broken(kind=kind, nodes=(1,), begin=begin, end=end)


def without(first: float, last: float) -> list[float]:
    """Every second, but for those between the two."""
    return [moment for moment in EVERY_SECOND if not first < moment < last]


def test_the_longest_gap_counts_as_a_whole_though_a_part_of_it_is_outside() -> None:
    moments = without(20, 30)
    assert longest(moments, 22, 24) == 10
    assert longest(moments, 5, 21) == 10
    assert longest(moments, 29, 50) == 10
    assert longest(moments, 31, 50) == 1
    assert longest([], 0, 1) == 0


def test_a_fault_has_the_gap_of_the_partition_that_waited_longest() -> None:
    found = of_faults({A: without(20, 30), B: without(22, 25)}, [broken("kill", 20.5, 21)])
    assert [gap for _, gap in found] == [10]


def test_what_comes_after_a_fault_is_its_own_until_the_next_one_begins() -> None:
    first, second = broken("kill", 10, 11), broken("pause", 19, 20)
    found = dict(of_faults({A: without(22, 27)}, [second, first]))
    assert found == {first: 1, second: 5}


def test_kinds_have_medians_and_maxima() -> None:
    found = [(broken("kill", 0, 1), gap) for gap in (1.0, 2.0, 9.0)] + [(broken("pause", 0, 1), 4.0)]
    assert by_kind(found) == {
        "kill": {"faults": 3, "median_s": 2.0, "max_s": 9.0},
        "pause": {"faults": 1, "median_s": 4.0, "max_s": 4.0},
    }


def test_all_is_well_between_faults() -> None:
    faults = [broken("kill", 10, 20), broken("pause", 15, 30), broken("kill", 50, 60)]
    assert well(faults, 0, 100) == [(0, 10), (30, 50), (60, 100)]
    assert well([], 0, 100) == [(0, 100)]
    assert well([broken("kill", 0, 100)], 0, 100) == []


def test_silence_while_something_is_broken_is_not_being_stuck() -> None:
    faults = [broken("kill", 20, 60)]
    assert stuck({A: without(19, 65)}, faults, 0, 100, 10) == []


def test_silence_afterwards_is() -> None:
    faults = [broken("kill", 20, 60)]
    assert stuck({A: without(19, 75), B: EVERY_SECOND}, faults, 0, 100, 10) == [
        "('a', 0): 56.0 s without an acknowledgement from 19.0 s on, and nothing was broken for 16.0 s of them"
    ]
    assert len(stuck({A: []}, faults, 0, 100, 10)) == 1


def test_faults_with_short_rests_between_them_do_not_hide_a_partition_that_is_stuck() -> None:
    faults = [broken("kill", begin, begin + 4) for begin in range(10, 80, 10)]
    assert stuck({A: without(12, 90)}, faults, 0, 100, 20)
    assert stuck({A: without(12, 35)}, faults, 0, 100, 20) == []


def test_the_longest_silence_is_counted_as_far_as_nothing_was_broken() -> None:
    faults = [broken("kill", 20, 60)]
    assert quiet_s({A: without(19, 65), B: EVERY_SECOND}, faults, 0, 100) == 6
    assert quiet_s({A: [at / 2 for at in range(201)]}, [], 0, 100) == 0
    assert quiet_s({A: []}, faults, 0, 100) == 60


def started(begin: float, end: float) -> Broken:
    return broken("start", begin, end)


def test_too_few_nodes_are_up_while_more_start_than_can_be_spared() -> None:
    starts = [started(10, 20), started(12, 25), started(14, 15), started(40, 50), started(50, 60)]
    assert [(each.begin, each.end) for each in starting(starts, 1)] == [(12, 20)]
    assert [(each.begin, each.end) for each in starting(starts, 2)] == [(14, 15)]
    assert [(each.begin, each.end) for each in starting(starts, 0)] == [(10, 25), (40, 50), (50, 60)]


def test_a_blackout_is_over_when_nodes_enough_have_started() -> None:
    faults, starts = [broken("blackout", 20, 22)], [started(22, 50), started(22, 45), started(22, 44)]
    excuses = [*faults, *starting(starts, 1)]
    assert stuck({A: without(19, 46)}, excuses, 0, 100, 10) == []
    assert stuck({A: without(19, 46)}, faults, 0, 100, 10)


def test_a_partition_that_is_stuck_after_all_have_started_is_found() -> None:
    faults, starts = [broken("blackout", 20, 22)], [started(22, 50), started(22, 45), started(22, 44)]
    assert stuck({A: without(19, 58), B: EVERY_SECOND}, [*faults, *starting(starts, 1)], 0, 100, 10) == [
        "('a', 0): 39.0 s without an acknowledgement from 19.0 s on, and nothing was broken for 14.0 s of them"
    ]


def test_one_node_that_starts_is_no_excuse() -> None:
    faults, starts = [broken("kill", 20, 22)], [started(22, 50)]
    assert stuck({A: without(19, 46)}, [*faults, *starting(starts, 1)], 0, 100, 10)


def test_a_client_is_stuck_alone_while_others_are_told_something() -> None:
    faults = [broken("kill", 20, 30)]
    assert alone({A: without(15, 60)}, {A: EVERY_SECOND}, faults, 0, 100, 30) == [
        "('a', 0): nothing for 45.0 s from 15.0 s on, and nothing was broken for 35.0 s of them"
    ]
    assert alone({A: without(15, 60)}, {A: EVERY_SECOND}, faults, 0, 100, 40) == []
    assert alone({A: []}, {A: EVERY_SECOND}, faults, 0, 100, 80)


def test_a_client_of_a_partition_that_is_stuck_is_not_stuck_alone() -> None:
    assert alone({A: without(15, 60)}, {A: without(15, 60)}, [], 0, 100, 30) == []
