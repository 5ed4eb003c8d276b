import ctypes
import errno
import os
import platform
import signal
import struct
import sys
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.core.runtime.page_cache import dirty_pages
from tidemill.core.runtime.joint_sync import (
    AT_ONCE_MAX,
    JointSync,
    KernelQueue,
    joint_sync,
    kernels_joint_sync,
    sync_each,
)


def _is_served() -> bool:
    joint = kernels_joint_sync()
    with tempfile.TemporaryFile() as file:
        return joint is not None and joint.serves(file.fileno())


linux = pytest.mark.skipif(not _is_served(), reason="needs Linux's asynchronous I/O, which a sandbox may forbid")


@pytest.fixture
def descriptors(tmp_path: Path) -> Iterator[list[int]]:
    opened = [os.open(tmp_path / str(number), os.O_CREAT | os.O_RDWR) for number in range(AT_ONCE_MAX + 3)]
    for descriptor in opened:
        os.write(descriptor, b"x" * 100)
    yield opened
    for descriptor in opened:
        os.close(descriptor)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that were synced one by one."""
    synced: list[int] = []
    real = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        synced.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return synced


@linux
@pytest.mark.parametrize("count", [0, 2, 4, AT_ONCE_MAX, AT_ONCE_MAX + 3])
def test_the_kernel_takes_all_of_them(descriptors: list[int], plain: list[int], count: int) -> None:
    sync = joint_sync(descriptors[0])
    assert isinstance(sync, JointSync)
    for _ in range(3):
        for descriptor in descriptors[:count]:
            os.pwrite(descriptor, b"y" * 5000, 0)
        sync(descriptors[:count])
    assert plain == []
    assert sum(map(dirty_pages, descriptors[:count])) == 0


@linux
def test_what_cannot_be_synced_raises_and_the_others_are_synced(descriptors: list[int], plain: list[int]) -> None:
    reader, writer = os.pipe()
    sync = joint_sync(descriptors[0])
    with pytest.raises(OSError) as caught:
        sync([descriptors[0], writer, descriptors[1]])
    assert caught.value.errno == errno.EINVAL
    assert plain == [writer]
    os.close(reader)
    os.close(writer)
    with pytest.raises(OSError) as caught:
        sync([writer, writer])
    assert caught.value.errno == errno.EBADF
    sync(descriptors[:3])


@linux
def test_where_the_kernel_takes_no_such_file_each_is_synced_by_itself() -> None:
    reader, writer = os.pipe()
    assert joint_sync(writer) is sync_each
    os.close(reader)
    os.close(writer)


@linux
def test_signals_do_not_end_it_early(descriptors: list[int], plain: list[int]) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    try:
        sync = joint_sync(descriptors[0])
        while len(heard) < 100:
            for descriptor in descriptors[:16]:
                os.pwrite(descriptor, b"z" * 5000, 0)
            sync(descriptors[:16])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert plain == []


@linux
def test_threads_and_forked_processes_are_in_nobodys_way(descriptors: list[int], plain: list[int]) -> None:
    sync = joint_sync(descriptors[0])

    def some(first: int) -> int:
        mine = descriptors[first : first + 8]
        for _ in range(50):
            for descriptor in mine:
                os.pwrite(descriptor, b"t" * 5000, 0)
            sync(mine)
            assert sum(map(dirty_pages, mine)) == 0
        return first

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(some, range(0, 32, 8))) == [0, 8, 16, 24]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of the test run: the child needs none
        child = os.fork()
    if child == 0:
        try:
            some(0)
            assert plain == []
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    some(0)


class Kernel:
    """Answers as Linux may: takes no more than so many at a time, and the n-th file of a call fails."""

    def __init__(self, *, room: int = 1000, failing: int = -1, error: int = errno.EIO) -> None:
        self.room, self.failing, self.error = room, failing, error
        self.refuses = 0  # to make a queue, with this error
        self.deaf = 0  # to tell what has come of it
        self.interrupted = self.queues = self.pending = 0
        self.joint = JointSync(lambda: KernelQueue(self, (1, 3, 4)))

    def __call__(self, number: ctypes.c_long, *values: Any) -> int:
        return {1: self.setup, 3: self.submit, 4: self.get}[number.value](*values)

    def setup(self, *_values: Any) -> int:
        ctypes.set_errno(self.refuses)
        self.queues += 1
        return -1 if self.refuses else 0

    def submit(self, _queue: Any, count: ctypes.c_long, _places: Any) -> int:
        if self.room == 0:
            ctypes.set_errno(errno.EAGAIN)
            return -1
        self.pending = min(self.room, count.value)
        return self.pending

    def get(self, _queue: Any, _least: Any, _most: Any, events: Any, _timeout: None) -> int:
        """One at a time, and every second time a signal comes between."""
        self.interrupted += 1
        if self.interrupted % 2 or self.deaf:
            ctypes.set_errno(self.deaf or errno.EINTR)
            return -1
        self.pending -= 1
        result = -self.error if self.pending == self.failing else 0
        ctypes.memmove(events, struct.pack("=QQqq", 0, 0, result, 0), 32)
        return 1


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("failing", range(3))
def test_the_error_of_one_file_is_raised_once_all_have_ended(descriptors: list[int], failing: int, error: int) -> None:
    kernel = Kernel(failing=failing, error=error)
    with pytest.raises(OSError) as caught:
        kernel.joint(descriptors[:3])
    assert (caught.value.errno, kernel.pending) == (error, 0)


def test_the_error_of_one_that_the_kernel_took_comes_before_that_of_one_it_refused(descriptors: list[int]) -> None:
    """It is told once"""
    kernel = Kernel(room=2, failing=0)
    with pytest.raises(OSError) as caught:
        kernel.joint([*descriptors[:2], -1])
    assert caught.value.errno == errno.EIO


def test_a_kernel_that_tells_nothing_is_not_waited_for_for_good(descriptors: list[int]) -> None:
    kernel = Kernel()
    kernel.get = lambda *_values: 0  # type: ignore[method-assign]
    with pytest.raises(OSError, match="tells nothing"):
        kernel.joint(descriptors[:2])


@pytest.mark.parametrize("room", [0, 1, 2])
def test_what_the_kernel_has_no_room_for_is_synced_one_by_one(
    descriptors: list[int], plain: list[int], room: int
) -> None:
    kernel = Kernel(room=room)
    for _ in range(2):
        kernel.joint(descriptors[:3])
        assert plain == descriptors[room:3]
        plain.clear()
    assert kernel.queues == 1


def test_a_queue_of_which_not_all_was_heard_is_not_used_again(descriptors: list[int]) -> None:
    kernel = Kernel()
    kernel.deaf = errno.EPERM
    with pytest.raises(PermissionError):
        kernel.joint(descriptors[:3])
    assert not kernel.joint.serves(descriptors[0])
    kernel.deaf = 0
    kernel.joint(descriptors[:3])
    assert kernel.queues == 3


def test_a_file_that_would_fail_together_is_not_served() -> None:
    kernel = Kernel(failing=0, error=errno.EOVERFLOW)
    assert not kernel.joint.serves(1)
    for kernel.error in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
        with pytest.raises(OSError) as caught:
            kernel.joint.serves(1)
        assert caught.value.errno == kernel.error
    kernel.failing = -1
    assert kernel.joint.serves(1)
    kernel.room = 0
    assert not kernel.joint.serves(1)
    assert kernel.queues == 1


def test_without_a_queue_files_are_synced_one_by_one(descriptors: list[int], plain: list[int]) -> None:
    kernel = Kernel()
    kernel.refuses = errno.ENOSYS
    assert not kernel.joint.serves(descriptors[0])
    kernel.joint(descriptors[:3])
    assert plain == descriptors[:3]


def test_one_file_needs_no_queue(descriptors: list[int], plain: list[int]) -> None:
    kernel = Kernel()
    kernel.joint(descriptors[:1])
    assert (plain, kernel.queues) == (descriptors[:1], 0)


@pytest.mark.parametrize(
    ("system", "machine", "largest"),
    [("Linux", "vax", 2**63 - 1), ("Darwin", "x86_64", 2**63 - 1), ("Linux", "x86_64", 2**31 - 1)],
)
def test_calls_are_made_where_their_numbers_are_known(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, largest: int
) -> None:
    """A process of 32 bits on a kernel of 64 has others: 206 is setgroups32 there."""
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "maxsize", largest)
    assert kernels_joint_sync() is None


@pytest.mark.parametrize(("machine", "numbers"), [("x86_64", [206, 209, 208]), ("aarch64", [0, 2, 4])])
def test_the_numbers_of_the_calls(
    descriptors: list[int], monkeypatch: pytest.MonkeyPatch, machine: str, numbers: list[int]
) -> None:
    """Of arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h."""
    called: list[int] = []

    class Library:
        @staticmethod
        def syscall(number: ctypes.c_long, *values: Any) -> int:
            called.append(number.value)
            return {numbers[0]: 0, numbers[1]: 2}.get(number.value, 0)

    monkeypatch.setattr(ctypes, "CDLL", lambda _name, **_more: Library)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    joint = kernels_joint_sync()
    assert joint is not None
    with pytest.raises(OSError, match="tells nothing"):
        joint(descriptors[:2])
    assert called == numbers
