"""What a mirror tells about itself, and whom to believe."""

from dataclasses import replace

import pytest

from tidemill.mirror.naming import is_internal
from tidemill.mirror.status_records import (
    FRESH_MS,
    TROUBLES_MAX,
    FlowState,
    StatusRow,
    decode,
    is_fresh,
    newest,
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
    fenced = replace(ROW, mirror="other:1:1", state=FlowState.ENDED, written_ms=5900)
    assert newest([ROW, fenced], 6000) == ROW
    assert newest([fenced, ROW], 60_000) == fenced, "none is alive: the one heard of last"
    stopped = replace(ROW, state=FlowState.STOPPED, written_ms=5500)
    assert newest([ROW, stopped], 6000) == stopped, "a mirror's own last word"
    assert newest([], 6000) is None


def test_the_topic_is_never_mirrored() -> None:
    assert is_internal(status_topic("A"))
