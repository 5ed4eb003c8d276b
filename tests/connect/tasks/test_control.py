"""Wishes to a task and its news"""

import threading
import time

from tidemill.connect.tasks.control import News, TaskControl


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
