"""Threads at work and at rest"""

import sys
import threading
import time

import pytest

from tidemill.core.runtime.thread_time import busy_s


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's figures are Linux's")
def test_a_thread_that_computes_is_told_from_one_that_waits() -> None:
    done = threading.Event()

    def compute() -> None:
        while not done.is_set():
            pass

    threads = [threading.Thread(target=compute), threading.Thread(target=done.wait)]
    for thread in threads:
        thread.start()
    ids = [thread.native_id or 0 for thread in threads]
    time.sleep(0.1)  # for both to have begun
    before = [busy_s(each) for each in ids]
    until = time.monotonic() + 10
    while busy_s(ids[0]) - before[0] < 0.1 and time.monotonic() < until:
        time.sleep(0.01)
    computed, waited = (busy_s(each) - was for each, was in zip(ids, before, strict=True))
    done.set()
    for thread in threads:
        thread.join()
    assert computed >= 0.1
    assert waited < 0.05


def test_a_thread_that_is_gone_has_not_worked() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    until = time.monotonic() + 10
    while busy_s(thread.native_id or 0) and time.monotonic() < until:
        time.sleep(0.01)  # the kernel takes it apart after Python has
    assert busy_s(thread.native_id or 0) == 0.0
