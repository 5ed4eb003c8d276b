"""Processor time of single threads"""

import sys
import threading
import time

import pytest

from tidemill.core.runtime.thread_time import cpu_s


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
    until = time.monotonic() + 10
    while cpu_s(ids[0]) < 0.1 and time.monotonic() < until:
        time.sleep(0.01)
    computed, waited = map(cpu_s, ids)
    done.set()
    for thread in threads:
        thread.join()
    assert computed >= 0.1
    assert waited < 0.05


def test_a_thread_that_is_gone_has_no_time() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert cpu_s(thread.native_id or 0) == 0.0
