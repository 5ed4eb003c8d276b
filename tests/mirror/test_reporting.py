"""What is said of a flow, and the exit status."""

from dataclasses import replace

from tidemill.core.types import TopicPartition
from tidemill.mirror.inspection import FlowReport, Life, PartitionStatus
from tidemill.mirror.reporting import lines_of, problems_of, standing_of, summary
from tidemill.mirror.status_records import FlowState, StatusRow
from tidemill.mirror.troubles import CLUSTER, PARTITION, Problem, Trouble

NOW = 1_700_000_100_000
ROW = StatusRow(
    flow="A->B",
    mirror="host.example:12:1699999999000",
    state=FlowState.RUNNING,
    started_ms=NOW - 90_000,
    written_ms=NOW,
)
STATUS = PartitionStatus(
    flow="A->B",
    source=TopicPartition("t", 0),
    target=TopicPartition("A.t", 0),
    source_end=10,
    position=10,
    target_end=10,
)
WELL = FlowReport(flow="A->B", life=Life.RUNNING, row=ROW, unreachable={}, partitions=(STATUS,))


def with_trouble(kind: str, name: str, reason: str) -> FlowReport:
    trouble = Trouble(problem=Problem(kind=kind, name=name, reason=reason, remedy="do this"), since_ms=NOW - 12_000)
    return replace(WELL, row=replace(ROW, troubles=(trouble,), troubles_total=1))


def test_a_mirror_that_runs_and_nothing_wrong() -> None:
    assert list(lines_of(WELL, NOW)) == ["A->B: running on host.example (process 12) since 2023-11-14 22:13:30Z"]
    found = summary([WELL], NOW)
    assert (found.exit_status, found.lag, found.problems, found.mirror) == (0, 0, 0, {"A->B": "running"})


def test_trouble_says_since_when_and_what_to_do() -> None:
    report = with_trouble(CLUSTER, "B", "unreachable: refused")
    assert problems_of(report, NOW) == ["cluster B: unreachable: refused (since 2023-11-14 22:14:48Z, 12 s): do this"]
    assert summary([report], NOW).exit_status == 1


def test_no_mirror_is_told_apart_from_one_with_trouble() -> None:
    for life in (Life.STOPPED, Life.SILENT):
        report = replace(with_trouble(CLUSTER, "B", "x"), life=life)
        assert problems_of(report, NOW) == [], "what a mirror told that is gone is history"
        assert summary([report, replace(WELL, flow="B->A")], NOW).exit_status == 3
    never = FlowReport(flow="A->B", life=Life.NOT_STARTED, row=None, unreachable={}, partitions=())
    assert list(lines_of(never, NOW)) == ["A->B: not started: no mirror has told of this flow on either cluster"]
    silent = replace(WELL, life=Life.SILENT, row=replace(ROW, written_ms=NOW - 600_000))
    assert "no sign of life" in next(lines_of(silent, NOW))
    assert "10 min ago" in next(lines_of(silent, NOW))


def test_a_cluster_that_nobody_told_of_is_named_once() -> None:
    away = replace(WELL, life=Life.UNKNOWN, row=None, unreachable={"B": "b:1: refused"}, partitions=())
    assert problems_of(away, NOW) == ["cluster B: unreachable from here: b:1: refused"]
    found = summary([away], NOW)
    assert (found.exit_status, found.lag) == (1, None)
    told = replace(with_trouble(CLUSTER, "B", "x"), unreachable={"B": "y"}, partitions=())
    assert len(problems_of(told, NOW)) == 1


def test_no_lag_is_claimed_where_nothing_is_known() -> None:
    report = replace(WELL, partitions=(STATUS, replace(STATUS, position=None)))
    found = summary([report], NOW)
    assert (found.lag, found.unknown) == (None, 1)


def test_a_partition_shows_what_the_mirror_tells_of_it() -> None:
    report = with_trouble(PARTITION, "t-0", "failed: the target … re-create it")
    assert standing_of(report, replace(STATUS, position=7)) == "failed, 3 behind"
    assert standing_of(WELL, STATUS) == "in step"
    assert standing_of(WELL, replace(STATUS, position=7)) == "3 behind"


def test_what_was_lost_and_what_does_not_fit_is_counted() -> None:
    report = with_trouble(PARTITION, "t-0", "failed: x")
    assert report.row is not None
    report = replace(report, row=replace(report.row, lost=5, troubles_total=3))
    lines = list(lines_of(report, NOW))
    assert any("deleted 5 offsets before they were mirrored" in line for line in lines)
    assert any("and 2 more" in line for line in lines)
    assert summary([report], NOW).lost == 5
