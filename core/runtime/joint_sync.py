"""Several open files made durable in one call, side by side

One `fdatasync` after the other waits for the disk as often as there are files, and its thread has to win the
interpreter back from the event loop after each. Linux takes them all at once (`io_submit` with IOCB_CMD_FDSYNC, 4.18),
works on them side by side, and one commit of its journal serves several: 16 files take a third of the time, or a tenth
on a busy disk (ext4). Whatever it does not take is synced one by one: on another system, in a sandbox that forbids it,
when its queue is full.

An error is told once, by whichever call hears of it first, so nothing here tries a second time.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Sequence

AT_ONCE_MAX = 128
"""Files in one call; more of them take several."""

_CALLS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}
"""Machine: the numbers of io_setup, io_submit and io_getevents, for which libc has no functions."""

_FDSYNC = 3
_OF_THE_DISK = (errno.EIO, errno.ENOSPC, errno.EDQUOT)  # told once: nobody else would hear of it
_REQUEST = struct.Struct("=QIIHhiQQqQII")  # struct iocb: data, key, rw_flags, opcode, priority, descriptor, …
_EVENT = struct.Struct("=QQqq")  # struct io_event: data, request, result, result2


class KernelQueue:
    """A queue of the kernel's asynchronous I/O, which lasts as long as the process; for one thread at a time."""

    def __init__(self, system_call: Callable[..., int], numbers: tuple[int, int, int]) -> None:
        self._queue = ctypes.c_ulong(0)
        self._call = system_call
        setup, self._submit, self._get = map(ctypes.c_long, numbers)
        if system_call(setup, ctypes.c_uint(AT_ONCE_MAX), ctypes.byref(self._queue)) != 0:
            raise _last_error()

    def begin(self, descriptors: Sequence[int]) -> int:
        """Have the kernel begin, with AT_ONCE_MAX at most; how many of them, from the first on, it has taken."""
        count = len(descriptors)
        requests = ctypes.create_string_buffer(
            b"".join(_REQUEST.pack(0, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, 0, 0) for descriptor in descriptors),
            _REQUEST.size * count,
        )
        first = ctypes.addressof(requests)
        places = (ctypes.c_void_p * count)(*range(first, first + _REQUEST.size * count, _REQUEST.size))
        return max(0, self._call(self._submit, self._queue, ctypes.c_long(count), places))

    def wait(self, count: int) -> list[int]:
        """The results of the `count` that were begun: 0, or an error number below it.

        Raises OSError if they cannot be had. They may still come, so this queue must not be used again then.
        """
        results: list[int] = []
        while len(results) < count:
            left = count - len(results)
            events = ctypes.create_string_buffer(_EVENT.size * left)
            got = self._call(self._get, self._queue, ctypes.c_long(left), ctypes.c_long(left), events, None)
            if got == 0:
                raise OSError(errno.EIO, "the kernel tells nothing of a sync that it has begun")
            if got < 0 and ctypes.get_errno() != errno.EINTR:
                raise _last_error()
            results += [result for _, _, result, _ in _EVENT.iter_unpack(events.raw[: _EVENT.size * max(0, got)])]
        return results


class JointSync:
    """Files made durable together, by any number of threads.

    Each takes a queue that no other has, and puts it back: to end one takes the kernel tens of milliseconds.
    """

    def __init__(self, make_queue: Callable[[], KernelQueue]) -> None:
        self._make_queue = make_queue
        self._free: list[KernelQueue] = []
        os.register_at_fork(after_in_child=self._free.clear)  # they are the parent's

    def __call__(self, descriptors: Sequence[int]) -> None:
        """Return once everything written to all of these survives a power cut; OSError if it is not so for one."""
        if len(descriptors) == 1:
            os.fdatasync(descriptors[0])
            return
        for at in range(0, len(descriptors), AT_ONCE_MAX):
            self._sync(descriptors[at : at + AT_ONCE_MAX])

    def serves(self, descriptor: int) -> bool:
        """Whether the kernel takes this one, and says in the end that all is well; OSError if the disk does not."""
        try:
            queue = self._take()
            results = queue.wait(queue.begin([descriptor]))
        except OSError:
            return False
        self._free.append(queue)
        for result in results:
            if -result in _OF_THE_DISK:
                raise OSError(-result, os.strerror(-result))
        return results == [0]

    def _sync(self, descriptors: Sequence[int]) -> None:
        try:
            queue = self._take()
        except OSError:  # all queues of this machine are taken
            sync_each(descriptors)
            return
        taken = queue.begin(descriptors)
        results = queue.wait(taken)
        self._free.append(queue)
        for result in results:
            if result < 0:
                raise OSError(-result, os.strerror(-result))
        sync_each(descriptors[taken:])  # which tells, too, what the kernel had against one

    def _take(self) -> KernelQueue:
        try:
            return self._free.pop()
        except IndexError:
            return self._make_queue()


def _last_error() -> OSError:
    error = ctypes.get_errno()
    return OSError(error, os.strerror(error))


def kernels_joint_sync() -> JointSync | None:
    """By the calls of this system, if they are known: in a process of 32 bits the same numbers are other calls."""
    if platform.system() != "Linux" or sys.maxsize < 2**32 or platform.machine() not in _CALLS:
        return None
    numbers = _CALLS[platform.machine()]
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return JointSync(lambda: KernelQueue(call, numbers))


_JOINT_SYNC = kernels_joint_sync()


def joint_sync(descriptor: int) -> Callable[[Sequence[int]], None]:
    """The best way to make several files durable that are where `descriptor` is: together, if that is served."""
    return _JOINT_SYNC if _JOINT_SYNC is not None and _JOINT_SYNC.serves(descriptor) else sync_each


def sync_each(descriptors: Sequence[int]) -> None:
    """One after the other."""
    for descriptor in descriptors:
        os.fdatasync(descriptor)
