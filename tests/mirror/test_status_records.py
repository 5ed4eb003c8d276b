"""What a mirror tells about itself, and whom to believe."""

from dataclasses import replace

import pytest

from tidemill.mirror.naming import is_internal
from tidemill.mirror.status_records import (
    FRESH_MS,
    TROUBLES_MAX,
    Belief,
    FlowState,
    StatusRow,
    believe,
    decode,
    is_fresh,
    status_topic,
)
from tidemill.mirror.troubles import PARTITION, Problem, Trouble

ROW = StatusRow(
    flow="A->B",
    mirror="host:12:1000",
    state=FlowState.RUNNING,
    started_ms=1000,
    written_ms=5000,
    partitions={"running": 2, "failed": 1},
    lag=7,
    lag_seconds=1.5,
    lost=3,
    troubles=(Trouble(problem=Problem(kind=PARTITION, name="t-0", reason="failed: x", remedy="y"), since_ms=4000),),
    troubles_total=1,
)


def test_a_record_comes_back_as_it_was_written() -> None:
    assert decode(ROW.key(), ROW.value()) == ROW
    unknown = replace(ROW, lag=None, lag_seconds=None, troubles=(), troubles_total=0)
    assert decode(unknown.key(), unknown.value()) == unknown


def test_a_record_stays_small_whatever_is_wrong() -> None:
    long = Problem(kind=PARTITION, name="t" * 249, reason="x" * 100_000, remedy="y" * 100)
    many = replace(ROW, troubles=(Trouble(problem=long, since_ms=1),) * 5000, troubles_total=5000)
    assert len(many.value()) < 300_000
    found = decode(many.key(), many.value())
    assert found is not None
    assert (len(found.troubles), found.troubles_total) == (TROUBLES_MAX, 5000)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"x", b"y"),
        (ROW.key(), None),
        (ROW.key(), ROW.value().replace(b'"version": 1', b'"version": 2')),
        (ROW.key(), ROW.value().replace(b'"running"', b'"asleep"')),
        (b"[]", ROW.value()),
        (ROW.key(), ROW.value().replace(b'"since_ms": 4000', b'"since_ms": null')),
    ],
    ids=["nothing", "no-json", "tombstone", "version", "state", "key", "trouble"],
)
def test_what_no_mirror_wrote_is_left_out(key: bytes | None, value: bytes | None) -> None:
    assert decode(key, value) is None


def test_a_sign_of_life_is_young_by_either_clock() -> None:
    assert is_fresh(ROW, 5000 + FRESH_MS)
    assert not is_fresh(ROW, 5001 + FRESH_MS)
    assert not is_fresh(ROW, 4999 - FRESH_MS)


def test_the_mirror_that_runs_is_believed() -> None:
    ended = replace(ROW, mirror="other:1:1", state=FlowState.ENDED, written_ms=5900)
    assert believe([ROW, ended], [], 6000) == Belief(row=ROW, living=True, settled=True)
    stopped = replace(ROW, state=FlowState.STOPPED, written_ms=5500)
    found = believe([ROW, stopped], [], 6000)
    assert found == Belief(row=stopped, living=True, settled=True), "a mirror's own last word"
    assert believe([], [], 6000) is None


def test_a_mirror_that_goes_on_telling_lives_whatever_its_clock_says() -> None:
    stopped = replace(ROW, mirror="other:1:1", state=FlowState.STOPPED, written_ms=100_000)
    killed = replace(ROW, mirror="third:1:1", written_ms=200_000)
    for slow in (replace(ROW, written_ms=written_ms) for written_ms in (5000, 900_000)):
        first = [slow, stopped, killed]
        found = believe(first, [], 101_000)
        assert found is not None
        assert not found.settled, "one of them may live, by a clock of its own"
        told = replace(slow, written_ms=slow.written_ms + 1000)
        assert believe([*first, told], first, 102_000) == Belief(row=told, living=True, settled=True)
        fresh = replace(slow, mirror="new:1:1")
        assert believe([*first, fresh], first, 102_000) == Belief(row=fresh, living=True, settled=True)
    assert believe([stopped, killed], [stopped, killed], 300_000) == Belief(row=killed, living=False, settled=False)
    assert believe([stopped], [], 300_000) == Belief(row=stopped, living=False, settled=True)


def test_one_that_stands_by_is_believed_when_no_other_may_be_at_work() -> None:
    standby = replace(ROW, mirror="other:1:1", state=FlowState.STANDBY, written_ms=100_000)
    assert believe([standby], [], 101_000) == Belief(row=standby, living=True, settled=True)
    assert believe([standby, ROW], [], 101_000) == Belief(row=standby, living=True, settled=False)


def test_the_topic_is_never_mirrored() -> None:
    assert is_internal(status_topic("A"))
