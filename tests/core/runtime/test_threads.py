"""Threads as a constructor argument"""

import threading

from tidemill.core.runtime.threads import OsThreads


def test_a_pool_has_its_name_and_no_more_workers_than_asked_for() -> None:
    with OsThreads().pool("some", 2) as pool:
        gate = threading.Barrier(2, timeout=10)
        names = set(pool.map(lambda _: (gate.wait(), threading.current_thread().name)[1], range(2)))
    assert names == {"tidemill-some_0", "tidemill-some_1"}
