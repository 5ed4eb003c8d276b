"""Which log is compacted next, and what of it"""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.log.cleanable import (
    RETRY_MS,
    RETRY_MS_MAX,
    CleanerMachine,
    LogState,
    SegmentState,
    groups,
    measure,
)
from tidemill.broker.log.config import LogConfig
from tidemill.core.types import TopicPartition

NOW = 1_000_000
COMPACT = LogConfig(cleanup_policy=("compact",))


def state(
    *sizes: int, cleaned: int | None = None, stable: int = 10**6, config: LogConfig = COMPACT, topic: str = "t"
) -> LogState:
    """A log of segments of ten offsets each; the last is the active one."""
    return LogState(
        topic_partition=TopicPartition(topic, 0),
        config=config,
        segments=tuple(SegmentState(base_offset=10 * n, size_bytes=size) for n, size in enumerate(sizes)),
        log_start_offset=0,
        stable_offset=stable,
        cleaned_offset=cleaned,
    )


def aged(log: LogState, **ages_ms: list[int]) -> LogState:
    """The same with ages of segments."""
    segments = [
        replace(segment, **{name: NOW - ages[number] for name, ages in ages_ms.items()})
        for number, segment in enumerate(log.segments)
    ]
    return replace(log, segments=tuple(segments))


@pytest.mark.parametrize(
    ("log", "first_dirty", "uncleanable", "clean_bytes", "dirty_bytes"),
    [
        (state(5), 0, 0, 0, 0),  # nothing but the active segment
        (state(5, 5), 0, 10, 0, 5),
        (state(5, 6, 7, 8, cleaned=20), 20, 30, 11, 7),
        (state(5, 6, 7, 8, cleaned=30), 30, 30, 18, 0),
        (state(5, 6, 7, 8, cleaned=13), 13, 30, 11, 13),  # the map was full in the middle of a segment
        (state(5, 6, 7, 8, stable=20), 0, 20, 0, 11),
        (state(5, 6, 7, 8, stable=29), 0, 20, 0, 11),  # a segment is cleaned as a whole or not at all
        (state(5, 6, 7, 8, cleaned=20, stable=10), 20, 20, 11, 0),
        (state(5, 6, 7, 8, cleaned=99), 0, 30, 0, 18),  # a checkpoint of another log of that name
        (replace(state(5, 6, 7, 8, cleaned=5), log_start_offset=12), 12, 30, 11, 13),  # retention went past it
    ],
)
def test_a_log_is_cut_in_three(
    log: LogState, first_dirty: int, uncleanable: int, clean_bytes: int, dirty_bytes: int
) -> None:
    found = measure(log, NOW)
    assert (found.first_dirty, found.uncleanable) == (first_dirty, uncleanable)
    assert (found.clean_bytes, found.dirty_bytes) == (clean_bytes, dirty_bytes)


@pytest.mark.parametrize(
    ("lag_ms", "uncleanable"), [(0, 40), (10, 30), (49, 30), (50, 30), (51, 20), (99, 20), (101, 0)]
)
def test_records_younger_than_the_lag_stay_and_so_does_what_follows(lag_ms: int, uncleanable: int) -> None:
    config = replace(COMPACT, min_compaction_lag_ms=lag_ms)
    log = aged(state(5, 5, 5, 5, 5, config=config), newest_ms=[100, 200, 50, 5, 0])
    assert measure(log, NOW).uncleanable == uncleanable


def test_the_dirtiest_log_above_its_ratio_comes_first() -> None:
    machine = CleanerMachine()
    logs = [
        state(50, 50, 9, cleaned=10, topic="half"),
        state(40, 60, 9, cleaned=10, topic="more"),
        state(10, 90, 9, cleaned=10, topic="most", config=replace(COMPACT, min_cleanable_dirty_ratio=0.95)),
        state(0, 99, 9, topic="not compacted", config=LogConfig()),
        state(99, topic="active only"),
    ]
    chosen = machine.choose(logs, NOW)
    assert chosen is not None
    assert (chosen.topic_partition.topic, chosen.dirty_ratio) == ("more", 0.6)
    assert machine.choose([logs[0], *logs[2:]], NOW) is None, "the ratio must be exceeded, as on Apache Kafka"


def test_a_record_beyond_the_largest_lag_is_cleaned_whatever_the_ratio() -> None:
    config = replace(COMPACT, min_cleanable_dirty_ratio=0.99, max_compaction_lag_ms=100)
    log = state(1000, 1, 1, cleaned=10, config=config)
    assert CleanerMachine().choose([aged(log, oldest_ms=[999, 100, 0])], NOW) is None
    chosen = CleanerMachine().choose([aged(log, oldest_ms=[999, 101, 0])], NOW)
    assert chosen is not None and chosen.overdue
    without_times = replace(log, segments=tuple(replace(each, oldest_ms=-1) for each in log.segments))
    assert CleanerMachine().choose([without_times], NOW) is None
    unsettled = replace(aged(log, oldest_ms=[999, 101, 0]), stable_offset=10)
    assert CleanerMachine().choose([unsettled], NOW) is None


def test_a_log_that_failed_is_left_alone_longer_and_longer_but_not_for_ever() -> None:
    machine, log, other = CleanerMachine(), state(1, 9, 9, topic="bad"), state(9, 1, topic="good")
    bad, now, waits = log.topic_partition, NOW, []
    for _ in range(12):
        chosen = machine.choose([log, other], now)
        assert chosen is not None and chosen.topic_partition == bad
        failure = machine.failed(bad, "corrupt", now)
        waits.append(failure.retry_at_ms - now)
        assert failure.since_ms == NOW
        assert machine.rests(bad, failure.retry_at_ms - 1) and not machine.rests(bad, failure.retry_at_ms)
        assert machine.failures == {bad: failure}
        chosen = machine.choose([log, other], failure.retry_at_ms - 1)
        assert chosen is not None and chosen.topic_partition.topic == "good", "the others go on"
        now = failure.retry_at_ms
    assert waits[:3] == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS]
    assert waits[-1] == RETRY_MS_MAX
    over = machine.succeeded(bad)
    assert over is not None and over.attempts == 12
    assert machine.succeeded(bad) is None
    assert machine.failures == {}
    again = machine.failed(bad, "corrupt", now)
    assert (again.attempts, again.since_ms) == (1, now)
    assert machine.failures_total == 13, "what is over still counts"


def test_a_log_that_is_gone_is_not_remembered() -> None:
    machine, one, two = CleanerMachine(), TopicPartition("a", 0), TopicPartition("b", 0)
    for key in (one, two):
        machine.failed(key, "corrupt", NOW)
    machine.keep_only({two})
    assert set(machine.failures) == {two}
    assert machine.failed(one, "corrupt", NOW).attempts == 1, "a new one of that name begins anew"


def test_a_log_that_rests_can_be_tried_again_before_its_time() -> None:
    machine, log = CleanerMachine(), state(1, 9, 9)
    first = machine.failed(log.topic_partition, "the map is too small", NOW)
    assert machine.choose([log], NOW + 5) is None
    machine.try_again(NOW + 5)
    assert machine.choose([log], NOW + 5) is not None
    again = machine.failed(log.topic_partition, "still", NOW + 5)
    assert (again.attempts, again.since_ms) == (2, first.since_ms), "it goes on counting"


SIZES = st.lists(st.integers(0, 120), min_size=1, max_size=12)


@given(SIZES, st.integers(1, 200), st.sampled_from([8, 16, 10**6]))
def test_groups_are_neighbours_within_the_limits_of_a_segment(sizes: list[int], limit: int, index_limit: int) -> None:
    config = LogConfig(segment_bytes=limit, segment_index_bytes=index_limit, index_interval_bytes=100)
    segments = [SegmentState(base_offset=10 * n, size_bytes=size) for n, size in enumerate([*sizes, 0])]
    made = groups(segments, config)
    assert [segment for group in made for segment in group] == segments[:-1]
    for group in made:
        assert len(group) == 1 or sum(segment.size_bytes for segment in group) <= limit
        assert len(group) == 1 or sum(8 * (segment.size_bytes // 100 + 1) for segment in group) <= index_limit
    if index_limit > 10**5:
        for group, following in pairwise(made):
            assert sum(segment.size_bytes for segment in [*group, following[0]]) > limit, "no smaller than they must be"


def test_the_offsets_of_a_group_fit_an_index() -> None:
    segments = [SegmentState(base_offset=base, size_bytes=1) for base in (0, 5, 2**31 - 10, 2**31, 2**31 + 5)]
    assert [[each.base_offset for each in group] for group in groups(segments, LogConfig())] == [
        [0, 5, 2**31 - 10],
        [2**31],
    ]


LOGS = st.builds(
    state,
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 99),
    cleaned=st.one_of(st.none(), st.integers(0, 40)),
    stable=st.integers(0, 45),
    topic=st.sampled_from("abc"),
    config=st.sampled_from([COMPACT, LogConfig(), replace(COMPACT, min_cleanable_dirty_ratio=0.0)]),
)


@given(st.lists(LOGS, max_size=4))
def test_what_is_chosen_is_stable_compacted_and_has_something_to_clean(logs: list[LogState]) -> None:
    chosen = CleanerMachine().choose(logs, NOW)
    due = [
        measure(log, NOW)
        for log in logs
        if log.config.compacted and measure(log, NOW).dirty_ratio > log.config.min_cleanable_dirty_ratio
    ]
    if chosen is None:
        assert due == []
        return
    assert chosen.dirty_ratio == max(each.dirty_ratio for each in due)
    log = next(each for each in logs if each.config.compacted and measure(each, NOW) == chosen)
    assert chosen.first_dirty < chosen.uncleanable <= log.segments[-1].base_offset
    assert chosen.uncleanable <= log.stable_offset
    assert chosen.uncleanable in [segment.base_offset for segment in log.segments]
    after = replace(log, cleaned_offset=chosen.uncleanable)
    assert CleanerMachine().choose([after], NOW) is None, "a log that was cleaned is not due"
