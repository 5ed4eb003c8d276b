"""What a mirror that is not ready says."""

from types import SimpleNamespace
from typing import Any

from tidemill.core.runtime.probe import Reason
from tidemill.mirror.troubles import PARTITION, Problem, Trouble, unreachable
from tidemill.mirror.watching import unready


def flow(name: str, *problems: Problem, ended: str = "") -> Any:
    troubles = tuple(Trouble(problem=problem, since_ms=1) for problem in problems)
    return SimpleNamespace(flow=SimpleNamespace(config=SimpleNamespace(name=name)), ended=ended, troubles=troubles)


def test_a_mirror_that_runs_is_ready_though_a_partition_is_in_trouble() -> None:
    lone = Problem(kind=PARTITION, name="t-0", reason="parked", remedy="put it right")
    assert unready([flow("A->B", lone)], has_started=True) == []


def test_before_its_flows_have_taken_their_topics_on_it_is_not() -> None:
    assert unready([flow("A->B")], has_started=False) == [
        Reason(what="mirror", why="its flows are taking their topics on")
    ]


def test_a_cluster_that_is_away_is_named_once() -> None:
    away = unreachable("A", "Connection refused")
    (reason,) = unready([flow("A->B", away), flow("B->A", away)], has_started=False)
    assert reason.what == "cluster A"
    assert reason.why == f"unreachable: Connection refused; {away.remedy}"


def test_a_flow_that_has_ended_says_why() -> None:
    assert unready([flow("A->B", ended="fenced by another mirror"), flow("B->A")], has_started=True) == [
        Reason(what="flow A->B", why="fenced by another mirror")
    ]
