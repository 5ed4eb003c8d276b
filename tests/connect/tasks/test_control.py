"""Wishes to a task and its news"""

import threading
import time
from typing import Any

from tidemill.connect.api import Computing, Json
from tidemill.connect.problem import Problem
from tidemill.connect.tasks.control import News, TaskControl
from tidemill.core.runtime.clock import ManualClock


def control(paused: bool = False) -> tuple[TaskControl, list[News]]:
    news: list[News] = []
    return TaskControl(news.append, paused=paused), news


def test_wishes_are_seen_and_told() -> None:
    subject, _ = control()
    told: list[tuple[bool, bool]] = []
    subject.on_change(lambda: told.append((subject.stopping, subject.paused)))
    subject.request_pause()
    subject.request_pause()
    subject.request_resume()
    subject.request_stop(1500)
    subject.request_stop(1)
    assert told == [(False, True), (False, False), (True, False)]
    assert subject.grace_ms == 1500


def test_a_wait_ends_with_a_wish() -> None:
    subject, _ = control()
    begun = time.monotonic()
    timer = threading.Timer(0.05, subject.request_stop, (0,))
    timer.start()
    subject.wait(30)
    assert subject.stopping
    assert time.monotonic() - begun < 10
    timer.join()


def test_a_wait_without_a_wish_ends_by_itself() -> None:
    subject, _ = control()
    subject.wait(0.01)
    assert not subject.stopping


def test_nothing_is_waited_for_once_the_task_is_to_end() -> None:
    subject, _ = control()
    subject.request_stop(0)
    begun = time.monotonic()
    subject.wait(30)
    assert time.monotonic() - begun < 10


def test_a_pause_that_was_over_before_it_is_waited_for_is_not_waited_for() -> None:
    subject, _ = control(paused=True)
    subject.request_resume()  # between a look at the wish and the wait
    begun = time.monotonic()
    subject.wait_while_paused(30)
    assert time.monotonic() - begun < 10


def test_a_next_try_may_be_never() -> None:
    subject, _ = control()
    subject.problem("quota", "not this year", retry_s=float("inf"))
    problem = subject.current_problem()
    assert problem is not None and problem.next_try_ms is not None
    timer = threading.Timer(0.05, subject.request_stop, (0,))
    timer.start()
    subject.wait(float("inf"))
    timer.join()


def test_the_start_is_announced_once() -> None:
    subject, news = control(paused=True)
    assert subject.paused
    subject.announce_start()
    subject.announce_start()
    subject.announce_pause(True)
    subject.announce_pause(False)
    subject.announce_completion()
    assert news == [News.STARTED, News.PAUSED, News.RESUMED, News.COMPLETED]


def test_facts_stay_until_overwritten() -> None:
    subject, _ = control()
    subject.report({"a": 1, "b": 2})
    subject.report({"a": 3})
    assert subject.facts == {"a": 3, "b": 2}


def test_the_reporter_is_called_for_what_is_new() -> None:
    news = threading.Event()
    subject = TaskControl(lambda news: None, news=news)
    subject.report({"a": 1, "topics": {"t": 1}})
    assert news.is_set()
    news.clear()
    for same in ({"a": 1}, {"topics": {"t": 1}}, {}):
        subject.report(same)
        assert not news.is_set()
    subject.report({"topics": {"t": 2}}, soon=False)
    assert not news.is_set()
    assert subject.facts == {"a": 1, "topics": {"t": 2}}
    subject.report({"topics": {"t": 3}})
    assert news.is_set()


def test_a_fact_that_a_plugin_goes_on_filling_is_new() -> None:
    news = threading.Event()
    subject = TaskControl(lambda news: None, news=news)
    tables: list[Json] = ["a"]
    for name in "bcd":
        subject.report({"tables": tables})
        assert news.is_set()
        news.clear()
        tables.append(name)
    subject.report({"tables": list(tables)})
    subject.report({"tables": [*tables, "e"]})
    news.clear()
    subject.report({"tables": [*tables, "e"]})
    assert not news.is_set()


def test_facts_need_not_be_comparable() -> None:
    """Arrays of NumPy, for one, do not say whether they are equal."""

    class Array(list[Json]):
        def __eq__(self, other: object) -> Any:
            raise ValueError("the truth value of an array is ambiguous")

        __hash__ = None  # type: ignore[assignment]

    news = threading.Event()
    subject = TaskControl(lambda news: None, news=news)
    for number in range(2):
        array = Array([number])
        subject.report({"lags": array})
        assert news.is_set() and subject.facts["lags"] is array
        news.clear()


def test_a_problem_stands_until_it_is_over() -> None:
    clock = ManualClock(1_000_000)
    subject = TaskControl(lambda news: None, clock=clock)
    subject.problem("database", "no route\n to it", retry_s=1)
    clock.advance(1_000)
    subject.problem("database", "no route to it", retry_s=2)
    assert subject.current_problem() == Problem(
        message="no route to it", since_ms=1_000_000, attempts=2, next_try_ms=1_003_000
    )
    subject.problem("database", None)
    subject.problem("database", None)
    assert subject.current_problem() is None
    subject.problem("database", "again")
    assert subject.current_problem() == Problem(message="again", since_ms=1_001_000)


def test_several_problems_are_told_as_one() -> None:
    clock = ManualClock(1_000_000)
    subject = TaskControl(lambda news: None, clock=clock)
    subject.problem("slot", "the slot is in use")
    clock.advance(500)
    subject.problem("cluster", "no broker", retry_s=1)
    assert subject.current_problem() == Problem(
        message="the slot is in use; no broker", since_ms=1_000_000, attempts=1, next_try_ms=1_001_500
    )
    subject.problem("slot", None)
    assert subject.current_problem() == Problem(
        message="no broker", since_ms=1_000_500, attempts=1, next_try_ms=1_001_500
    )


def test_a_problem_that_is_not_said_again_fades() -> None:
    clock = ManualClock()
    subject = TaskControl(lambda news: None, clock=clock)
    subject.problem_over_in("job", 3)
    assert subject.current_problem() is None
    subject.problem("job", "away", retry_s=1)
    subject.problem_over_in("job", 3)
    clock.advance(2_999)
    assert subject.current_problem() is not None
    subject.problem("job", "away", retry_s=1)
    clock.advance(10_000)
    assert subject.current_problem() is not None, "it was said again"
    subject.problem_over_in("job", 3)
    clock.advance(3_000)
    assert subject.current_problem() is None


def test_a_call_that_does_not_return_is_told_with_the_place_it_is_at() -> None:
    clock = ManualClock(5_000_000)
    subject = TaskControl(lambda news: None, clock=clock)
    inside, leave = threading.Event(), threading.Event()

    def poll_a_database() -> None:
        inside.set()
        leave.wait(30)

    def run() -> None:
        with subject.calling("poll"):
            poll_a_database()

    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(30)
    assert subject.current_problem() is None, "not yet"
    clock.advance(4_000)
    problem = subject.current_problem()
    leave.set()
    thread.join()
    assert problem is not None and problem.since_ms == 5_000_000
    assert problem.message.startswith("poll() of the plugin has not returned")
    assert "in poll_a_database, called from test_control.py:" in problem.message
    assert subject.current_problem() is None


def news_after(subject: TaskControl, interval_s: float) -> float:
    """How long the reporter waits, seconds."""
    begun = time.monotonic()
    subject.wait_for_news(interval_s)
    return time.monotonic() - begun


def test_what_is_said_wakes_the_reporter_and_only_time_that_matters_does() -> None:
    subject = TaskControl(lambda news: None, clock=ManualClock(0))
    subject.report({"lag": 1})
    assert news_after(subject, 100) < 10, "it was said before"
    threading.Timer(0.05, lambda: subject.problem("job", "away")).start()
    assert news_after(subject, 100) < 10
    assert news_after(subject, 0.01) < 2, "a problem may fade at any time"
    subject.problem("job", None)
    assert news_after(subject, 100) < 10


def test_a_call_that_does_not_return_is_told_within_five_seconds() -> None:
    """The wait is never longer than until a call, of now or the next one, has to be told of."""
    clock = ManualClock(0)
    subject = TaskControl(lambda news: None, clock=clock)
    assert subject.quiet_s(2.0) == 5.0
    with subject.calling("poll"):
        assert subject.quiet_s(2.0) == 5.0
        clock.advance(4_000)
        assert subject.quiet_s(2.0) == 1.0
        clock.advance(1_000)
        assert subject.quiet_s(2.0) == 2.0, "it is told, and where it is may change"
    with subject.calling("put", 30.0):
        assert subject.quiet_s(2.0) == 5.0, "a poll may follow it at once"


def test_a_call_is_overdue_once_it_has_taken_longer_than_it_may() -> None:
    clock = ManualClock()
    subject = TaskControl(lambda news: None, clock=clock)
    assert subject.overdue(60) is None
    with subject.calling("put", of="the plugin"):
        clock.advance(60_000)
        assert subject.overdue(60) is None
        clock.advance(1_000)
        overdue = subject.overdue(60)
        assert overdue is not None
        assert overdue.startswith("put() of the plugin had not returned after 61 s, it was at ")
    assert subject.overdue(60) is None


def test_a_thread_that_computes_while_calls_return_is_a_problem_and_may_be_overdue() -> None:
    clock = ManualClock(5_000_000)
    subject = TaskControl(lambda news: None, clock=clock)
    subject.computes(Computing(threading.get_ident(), 4.0))
    with subject.calling("poll"):
        problem = subject.current_problem()
        assert problem is not None and problem.since_ms == 5_000_000 - 4_000
        assert problem.message.startswith("the generator of the plugin gives no record, and computes; it is at ")
        overdue = subject.overdue(3.0)
        assert overdue is not None and overdue.startswith("the generator of the plugin had given no record after 4 s")
    subject.computes(None)
    assert subject.current_problem() is None and subject.overdue(3.0) is None
