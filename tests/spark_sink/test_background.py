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
    background.wait()
    assert (done, background.is_busy) == ([1, 2], False)
    background.close()


def test_an_error_is_told_until_it_is_settled_and_nothing_starts_before() -> None:
    done: list[int] = []

    def fail() -> None:
        raise ValueError("disk full")

    background = Background("test")
    background.check()
    background.start(fail)
    for ask in (background.wait, background.check, lambda: background.start(lambda: done.append(1))):
        with pytest.raises(ValueError, match="disk full"):
            ask()
    assert str(background.settle()) == "disk full"
    assert background.settle() is None
    background.start(lambda: done.append(2))
    background.wait()
    assert done == [2]
    background.close()
