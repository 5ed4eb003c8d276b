"""What a worker remembers of what it has run"""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.failure import Failure
from tidemill.connect.herder.history import RUNS_MAX, History, Run


def test_a_run_has_its_end_once_it_has_come() -> None:
    history = History()
    history.started("c", 0, generation=3, now_ms=1_000)
    assert history.of("c") == {0: (Run(generation=3, started_ms=1_000),)}
    trace = "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: no"
    history.ended("c", 0, trace, now_ms=4_000, failure=Failure.BUG, next_try_ms=9_000)
    ended = Run(
        generation=3,
        started_ms=1_000,
        ended_ms=4_000,
        reason="ValueError: no",
        failure=Failure.BUG,
        next_try_ms=9_000,
    )
    assert history.of("c") == {0: (ended,)}


def test_the_first_word_on_an_end_counts() -> None:
    """A task that has failed said why; that its process then ended, too, is no news."""
    history = History()
    history.started("c", 0, generation=1, now_ms=1)
    history.ended("c", 0, "the disk is full", now_ms=2, failure=Failure.CONFIGURATION)
    history.ended("c", 0, "ended with code 1 after it failed", now_ms=3, failure=Failure.BUG)
    assert [(run.ended_ms, run.reason) for run in history.of("c")[0]] == [(2, "the disk is full")]


def test_instances_do_not_mix_and_what_was_never_started_does_not_end() -> None:
    history = History()
    history.ended("c", 0, "of a life before", now_ms=1)
    history.started("c", None, generation=1, now_ms=1)
    history.started("c", 1, generation=1, now_ms=2)
    history.ended("c", 0, "of a life before", now_ms=3)
    assert {task: [run.ended_ms for run in runs] for task, runs in history.of("c").items()} == {None: [None], 1: [None]}
    assert history.of("d") == {}
    history.forget("c")
    history.ended("c", 1, "too late", now_ms=4)
    assert history.of("c") == {}


@given(st.lists(st.sampled_from(["start", "end"]), max_size=100))
def test_it_has_the_last_runs_in_order_and_at_most_one_goes_on(steps: list[str]) -> None:
    history, starts = History(), []
    for now_ms, step in enumerate(steps, 1):
        if step == "start":
            history.ended("c", 0, "replaced", now_ms=now_ms)
            history.started("c", 0, generation=1, now_ms=now_ms)
            starts.append(now_ms)
        else:
            history.ended("c", 0, "asked for", now_ms=now_ms)
    runs = history.of("c").get(0, ())
    assert [run.started_ms for run in runs] == starts[-RUNS_MAX:]
    assert all(run.ended_ms is not None for run in runs[:-1])
