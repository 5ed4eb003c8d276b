"""The loop around jobs, on a thread of the test"""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.connect.tasks.conftest import Loop, plugin, until
from tidemill.connect.api import JobTask, NotConnected, PluginKind, RetryAfter, TaskContext
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks import job
from tidemill.connect.tasks.backoff import Backoff
from tidemill.connect.tasks.control import News
from tidemill.connect.tasks.job import JobRunner


class Shift(JobTask):
    """Works until told to stop; `troubles` are raised by the first runs."""

    troubles: list[Exception]
    runs: list["Shift"]

    def __init__(self) -> None:
        self.end = threading.Event()

    def run(self, context: TaskContext) -> None:
        self.runs.append(self)
        if self.troubles:
            raise self.troubles.pop(0)
        while not context.stopping() and not self.end.wait(0.01):
            pass

    def stop(self) -> None:
        self.end.set()


@pytest.fixture
def work(
    run: Callable[..., Loop], spec: Callable[..., TaskSpec], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Loop, list[Shift]]]:
    monkeypatch.setattr(job, "Backoff", lambda cap_s: Backoff(0.01, 0.01))

    def start(*troubles: Exception, kind: type[Any] = Shift, paused: bool = False) -> tuple[Loop, list[Shift]]:
        runs: list[Shift] = []
        subject = type("Job", (kind,), {"troubles": list(troubles), "runs": runs})
        return run(JobRunner, plugin(subject, PluginKind.SINK), spec("p"), paused=paused), runs

    return start


def test_a_job_has_no_records_to_transform(run: Callable[..., Loop], spec: Callable[..., TaskSpec]) -> None:
    loop = run(JobRunner, plugin(Shift, PluginKind.SINK), spec("p", {"transforms": "a"}))
    until(lambda: loop.ended, "the end")
    assert "remove 'transforms'" in str(loop.error)


def test_a_job_runs_until_it_is_stopped(work: Callable[..., Any]) -> None:
    loop, runs = work()
    until(lambda: runs, "the run")
    loop.stop()
    assert loop.error is None
    assert runs[0].end.is_set()
    assert loop.news == [News.STARTED]


def test_a_pause_stops_it_and_a_resume_runs_another(work: Callable[..., Any]) -> None:
    loop, runs = work()
    until(lambda: runs, "the run")
    loop.control.request_pause()
    until(lambda: News.PAUSED in loop.news, "the pause")
    loop.control.request_resume()
    until(lambda: len(runs) == 2, "the second run")
    assert runs[0] is not runs[1]
    loop.stop()
    assert loop.news == [News.STARTED, News.PAUSED, News.RESUMED]


def test_a_job_that_starts_paused_does_not_run(work: Callable[..., Any]) -> None:
    loop, runs = work(paused=True)
    until(lambda: loop.news == [News.STARTED, News.PAUSED], "the pause")
    assert runs == []
    loop.stop()
    assert runs == []


def test_interruptions_run_it_again(work: Callable[..., Any]) -> None:
    loop, runs = work(NotConnected("away"), RetryAfter(0.01), NotConnected("away"))
    until(lambda: len(runs) == 4, "the fourth run")
    problem = loop.control.current_problem()
    assert problem is not None and problem.message == "away" and problem.attempts == 3
    until(lambda: loop.control.current_problem() is None, "the end of the problem")
    loop.stop()
    assert loop.error is None


def test_a_bug_fails_it(work: Callable[..., Any]) -> None:
    loop, _ = work(ZeroDivisionError("a bug"))
    until(lambda: loop.ended, "the end")
    assert isinstance(loop.error, ZeroDivisionError)


class Lazy(Shift):
    def run(self, context: TaskContext) -> None:
        pass


def test_a_job_that_just_ends_has_failed(work: Callable[..., Any]) -> None:
    loop, _ = work(kind=Lazy)
    until(lambda: loop.ended, "the end")
    assert "nobody had asked it to" in str(loop.error)


class Grumpy(Shift):
    def stop(self) -> None:
        super().stop()
        raise ZeroDivisionError("a bug in stop")


def test_a_bug_in_stop_does_not_keep_it_running(work: Callable[..., Any]) -> None:
    loop, runs = work(kind=Grumpy)
    until(lambda: runs, "the run")
    loop.stop()
    assert loop.error is None


def test_something_else_than_a_job_is_refused(run: Callable[..., Loop], spec: Callable[..., TaskSpec]) -> None:
    loop = run(JobRunner, plugin(object, PluginKind.SINK), spec("p"))
    until(lambda: loop.ended, "the end")
    assert "not a JobTask" in str(loop.error)


class Slow(Shift):
    """Takes its time to end."""

    ended = threading.Event()

    def run(self, context: TaskContext) -> None:
        super().run(context)
        self.ended.wait(10)


def test_a_job_that_is_resumed_before_its_pause_has_ended_it_runs_again(work: Callable[..., Any]) -> None:
    Slow.ended.clear()
    loop, runs = work(kind=Slow)
    until(lambda: runs, "the run")
    loop.control.request_pause()
    loop.control.request_resume()
    Slow.ended.set()
    until(lambda: len(runs) == 2, "the second run")
    loop.stop()
    assert loop.error is None
