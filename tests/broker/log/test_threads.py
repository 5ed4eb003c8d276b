"""Work for the threads of a folder"""

import pytest

from tidemill.broker.log.threads import LogThreads, parts_of, run_all, run_each


def test_each_kind_of_work_has_its_own_thread() -> None:
    threads = LogThreads.start()
    pools = (threads.flush, threads.files, threads.reads)
    names = [pool.submit(lambda: __import__("threading").current_thread().name).result() for pool in pools]
    assert [name.rpartition("_")[0] for name in names] == ["tidemill-flush", "tidemill-files", "tidemill-read"]
    threads.shutdown()
    with pytest.raises(RuntimeError):
        threads.flush.submit(print)


def test_an_error_ends_what_belongs_together_and_nothing_else() -> None:
    done: list[int] = []

    def call(number: int) -> None:
        if number in (1, 2):
            raise OSError(number, "as if")
        done.append(number)

    calls = [lambda number=number: call(number) for number in range(4)]  # type: ignore[misc]
    with pytest.raises(OSError, match="as if"):
        run_all(calls)
    assert done == [0]
    with pytest.raises(OSError, match="as if") as raised:
        run_each(calls)
    assert raised.value.errno == 1
    assert done == [0, 0, 3]


def test_parts_keep_the_order() -> None:
    assert [list(part) for part in parts_of([1, 2, 3, 4, 5], 2)] == [[1, 2], [3, 4], [5]]
    assert list(parts_of([], 2)) == []
