"""Commits in the background: one at a time, errors told, an end that waits"""

import threading

import pytest

from tidemill.spark_sink.background import Background


def test_the_next_waits_for_the_place() -> None:
    done: list[int] = []
    go = threading.Event()

    def first() -> None:
        go.wait(30)
        done.append(1)

    background = Background("test")
    background.start(first)
    assert background.is_busy
    waiting = threading.Thread(target=lambda: background.start(lambda: done.append(2)))
    waiting.start()
    assert done == []
    go.set()
    waiting.join(30)
    assert background.close() is None
    assert (done, background.is_busy) == ([1, 2], False)


def test_an_error_is_told_to_whoever_asks_and_nothing_starts_after_it() -> None:
    done: list[int] = []

    def fail() -> None:
        raise ValueError("disk full")

    background = Background("test")
    background.check()
    background.start(fail)
    for ask in (lambda: background.start(lambda: done.append(1)), background.check):
        with pytest.raises(ValueError, match="disk full"):
            ask()
    assert str(background.close()) == "disk full"
    assert done == []


def test_what_comes_after_the_end_is_refused_also_when_it_waited_for_its_turn() -> None:
    done: list[int] = []
    refused = threading.Event()
    go = threading.Event()
    background = Background("test")
    background.start(lambda: done.append(int(go.wait(30))))

    def late() -> None:
        with pytest.raises(RuntimeError):
            background.start(lambda: done.append(2))
        refused.set()

    waiting = threading.Thread(target=late)
    waiting.start()
    closing = threading.Thread(target=background.close)
    closing.start()
    closing.join(0.5)
    go.set()
    closing.join(30)
    assert refused.wait(30)
    assert done == [1]
