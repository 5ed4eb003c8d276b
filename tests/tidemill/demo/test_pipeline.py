"""What the demo waits for, without its parts; with them: tests/integration/test_pipeline_crash.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.demo import pipeline as module
from tidemill.demo.compare import Comparison
from tidemill.demo.pipeline import Counts, Outcome, Pipeline

EQUAL = Comparison(source_rows=2, warehouse_rows=2, differences=())
DIFFERENT = Comparison(source_rows=2, warehouse_rows=1, differences=("row 2 is missing in the warehouse",))


def seen(comparison: Comparison, captured: int, mirrored: int) -> Outcome:
    return Outcome(comparison=comparison, counts=Counts(captured=captured, mirrored=mirrored))


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    made = Pipeline(tmp_path)
    monkeypatch.setattr(made, "check_alive", lambda: None)
    return made


def goes(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, steps: list[Outcome]) -> None:
    """Each look finds the next step; the last one stays."""
    looks: Iterator[Outcome] = iter([*steps, *[steps[-1]] * 1_000_000])
    now = steps[0]

    def compare() -> Comparison:
        nonlocal now
        now = next(looks)
        return now.comparison

    monkeypatch.setattr(pipeline, "compare", compare)
    monkeypatch.setattr(pipeline, "counts", lambda: now.counts)


def test_equal_tables_are_not_enough_while_records_are_on_the_way(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [seen(DIFFERENT, 5, 3), seen(DIFFERENT, 6, 6), seen(EQUAL, 7, 6), seen(EQUAL, 7, 7)]
    goes(pipeline, monkeypatch, steps)
    shown: list[Counts] = []
    assert pipeline.wait_equal(60, on_wait=shown.append) == steps[-1]
    assert shown == [step.counts for step in steps[:-1]]


@pytest.mark.parametrize("stuck", [seen(EQUAL, 7, 6), seen(DIFFERENT, 7, 7)])
def test_what_does_not_move_is_not_waited_for(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, stuck: Outcome
) -> None:
    goes(pipeline, monkeypatch, [stuck])
    found = pipeline.wait_equal(0.01)
    assert found == stuck
    assert not found.ok
