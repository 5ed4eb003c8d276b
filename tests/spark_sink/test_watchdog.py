"""A watchdog hears, acts once, and leaves with its block"""

import threading
import time

from tidemill.spark_sink.watchdog import Watchdog


def test_silence_makes_it_act_once() -> None:
    acted = threading.Semaphore(0)
    with Watchdog(0.05, acted.release):
        assert acted.acquire(timeout=10)
    assert not acted.acquire(timeout=0.2)


def test_beats_keep_it_quiet() -> None:
    acted = threading.Event()
    with Watchdog(30, acted.set) as watchdog:
        for _ in range(3):
            watchdog.beat()
            time.sleep(0.01)
    assert not acted.is_set()
    assert "watchdog" not in {thread.name for thread in threading.enumerate()}


def test_without_a_limit_there_is_no_thread() -> None:
    with Watchdog(0, lambda: None) as watchdog:
        watchdog.beat()
        assert "watchdog" not in {thread.name for thread in threading.enumerate()}
