import ctypes
import errno
import os
import platform
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.core.runtime.joint_sync import AT_ONCE_MAX, JointSync, joint_sync, sync_each

linux = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"), reason="needs Linux's calls"
)


CACHESTAT = 451  # Linux 6.5, on every machine


def dirty_pages(descriptor: int) -> int:
    """Pages of a file that are not on the disk yet."""
    all_of_it, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    call = ctypes.CDLL(None, use_errno=True).syscall
    if call(ctypes.c_long(CACHESTAT), ctypes.c_int(descriptor), all_of_it, found, ctypes.c_uint(0)) != 0:
        pytest.skip(f"needs cachestat, of Linux 6.5: {os.strerror(ctypes.get_errno())}")
    return int(found[1] + found[2])


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
    sync = joint_sync()
    assert isinstance(sync, JointSync)
    for _ in range(3):
        sync(descriptors[:count])
    assert plain == []


@linux
def test_nothing_is_left_in_the_page_cache_alone(tmp_path: Path) -> None:
    with open(tmp_path / "a", "wb", buffering=0) as a, open(tmp_path / "b", "wb", buffering=0) as b:
        files = [a.fileno(), b.fileno()]
        a.write(b"x" * 1_000_000)
        b.write(b"x" * 1_000_000)
        if dirty_pages(a.fileno()) == 0:
            pytest.skip("written through at once: a file system in memory, or one under synchronous writes")
        joint_sync()(files)
        assert [dirty_pages(file) for file in files] == [0, 0]


@linux
def test_what_cannot_be_synced_raises_and_the_others_are_synced(descriptors: list[int], plain: list[int]) -> None:
    reader, writer = os.pipe()
    sync = joint_sync()
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
def test_signals_do_not_end_it_early(descriptors: list[int], plain: list[int]) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    try:
        sync = joint_sync()
        while len(heard) < 100:
            for descriptor in descriptors[:16]:
                os.pwrite(descriptor, b"z" * 5000, 0)
            sync(descriptors[:16])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert plain == []


class Kernel:
    """Answers as Linux may: takes no more than so many at a time, and the n-th file of a call fails."""

    def __init__(self, *, room: int = 1000, failing: int = -1, refuses: int = 0) -> None:
        self.room, self.failing, self.refuses = room, failing, refuses
        self.interrupted = 0
        self.pending = 0

    def __call__(self, number: ctypes.c_long, *values: Any) -> int:
        return {1: self.setup, 2: self.destroy, 3: self.submit, 4: self.get}[number.value](*values)

    def setup(self, *_values: Any) -> int:
        ctypes.set_errno(self.refuses)
        return -1 if self.refuses else 0

    def destroy(self, *_values: Any) -> int:
        return 0

    def submit(self, _queue: Any, count: ctypes.c_long, _places: Any) -> int:
        if self.room == 0:
            ctypes.set_errno(errno.EAGAIN)
            return -1
        self.pending = min(self.room, count.value)
        return self.pending

    def get(self, _queue: Any, _least: Any, _most: Any, events: Any, _timeout: None) -> int:
        """One at a time, and every second time a signal comes between."""
        self.interrupted += 1
        if self.interrupted % 2:
            ctypes.set_errno(errno.EINTR)
            return -1
        self.pending -= 1
        result = -errno.EIO if self.pending == self.failing else 0
        ctypes.memmove(events, struct.pack("=QQqq", 0, 0, result, 0), 32)
        return 1


def test_the_error_of_one_file_is_raised_once_all_have_ended(descriptors: list[int]) -> None:
    for failing in range(3):
        kernel = Kernel(failing=failing)
        with pytest.raises(OSError) as caught:
            JointSync(kernel, (1, 2, 3, 4))(descriptors[:3])
        assert (caught.value.errno, kernel.pending) == (errno.EIO, 0)


@pytest.mark.parametrize("room", [0, 1, 2])
def test_what_the_kernel_has_no_room_for_is_synced_one_by_one(
    descriptors: list[int], plain: list[int], room: int
) -> None:
    JointSync(Kernel(room=room), (1, 2, 3, 4))(descriptors[:3])
    assert plain == descriptors[room:3]


def test_without_the_calls_files_are_synced_one_by_one(
    descriptors: list[int], plain: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="not implemented"):
        JointSync(Kernel(refuses=errno.ENOSYS), (1, 2, 3, 4))
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    assert joint_sync() is sync_each
    joint_sync()(descriptors[:3])
    assert plain == descriptors[:3]


def test_one_file_needs_no_queue(descriptors: list[int], plain: list[int]) -> None:
    joint_sync()(descriptors[:1])
    assert plain == descriptors[:1]
