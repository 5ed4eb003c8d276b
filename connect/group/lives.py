"""Lives of workers on this machine, and which of them are over

A worker that was killed is still a member of its group until its session ends, and what it did waits for longer than
that, because the others cannot know whether its tasks have ended. The next worker on the same machine can. Every life
of a worker has a file here that it keeps locked, and so do its guardian, its nurseries and its tasks, which inherit
the open file: the kernel lets go of the lock when the last of them is gone. A file whose lock is free tells of a life
that is over with all that it did; in it are the member that it was and the generation it had.
Programs that tasks have started need not have inherited the file. The guardian ends them; should it have been killed
together with the worker, they are found by their environment (`LifeFacts.mark`).

Only a kernel knows its locks. A folder that several machines share may be on a file system that does not tell one of
the locks of the other, so nothing is concluded from a file that was written under another kernel, or before a reboot.

So a worker that is started again takes up its work at once. Where the folder is empty (another machine, a container
without the files of the one before) nothing is known, and the waits are as for any other worker.

A life that has ended in order leaves a file only if it was the last of its group and waited for nobody: who comes next
then knows that nobody else has been there since, and has nobody to wait for either.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import secrets
import stat
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

SUFFIX = ".life"
MARK = "TIDEMILL_LIFE"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
FILES_MAX = 1_000
"""More are not looked at: they are leftovers that somebody else has to explain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeFacts:
    """What a life has left; a generation above that was not its own.

    `alone_in` is its last round (as its group counts rounds; `generation` goes on where a group begins anew), if there
    was nobody else in it and nobody was waited for; else -1.
    """

    worker_id: str
    process: int
    member_id: str = ""
    generation: int = -1
    kernel: str = ""  # the start of the kernel whose locks tell of it
    name: str = ""  # of its file
    alone_in: int = -1

    @property
    def mark(self) -> str:
        """What all that it started has in its environment, whether it has kept the file open or not."""
        return f"{MARK}={self.name}"


class Life:
    """This worker's file; its descriptor is handed down to whatever may outlive the worker."""

    def __init__(self, path: Path, descriptor: int, facts: LifeFacts) -> None:
        self._path = path
        self.descriptor = descriptor
        self.environ = {MARK: facts.name}  # of all that it starts
        self._facts = facts
        self._write()

    def is_member(self, member_id: str, generation: int, alone_in: int = -1) -> None:
        """Remember who this is in the group, and the generation of its newest assignment; before it acts on it."""
        self._facts = replace(self._facts, member_id=member_id, generation=generation, alone_in=alone_in)
        self._write()

    def _write(self) -> None:
        facts = self._facts
        content = [facts.worker_id, facts.process, facts.member_id, facts.generation, facts.kernel, facts.alone_in]
        data = json.dumps(content).encode()
        os.pwrite(self.descriptor, data, 0)
        os.ftruncate(self.descriptor, len(data))

    def close(self) -> None:
        """It has ended in order, and left nothing to find out but that it was the last."""
        if self._facts.alone_in < 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
        os.close(self.descriptor)


class Lives:
    """The lives of a group's workers on this machine."""

    def __init__(self, folder: Path, kernel: str | None = None) -> None:
        self._folder = folder
        self._kernel = _kernel() if kernel is None else kernel

    @classmethod
    def of_group(cls, cluster_id: str, group: str) -> "Lives":
        """In a folder for what a machine may forget."""
        name = hashlib.sha256(f"{cluster_id}\0{group}".encode()).hexdigest()[:20]
        return cls(Path(tempfile.gettempdir()) / f"tidemill-{os.getuid()}" / name)

    def begin(self, worker_id: str) -> Life:
        """A new life; raises OSError, also where others can get at the folder."""
        for folder in (self._folder.parent, self._folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            if found.st_uid != os.getuid() or found.st_mode & 0o022 or not stat.S_ISDIR(found.st_mode):
                raise PermissionError(f"others can write to {folder}")
        path = self._folder / f"{secrets.token_hex(16)}{SUFFIX}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return Life(
            path, descriptor, LifeFacts(worker_id=worker_id, process=os.getpid(), kernel=self._kernel, name=path.stem)
        )

    def look(self, *, but: Life) -> tuple[list[LifeFacts], list[LifeFacts]]:
        """All other lives under this kernel: those that are over, and those of which something still runs."""
        over: list[LifeFacts] = []
        going_on: list[LifeFacts] = []
        for path in sorted(self._folder.glob(f"*{SUFFIX}"))[:FILES_MAX]:
            if path == but._path:
                continue
            with contextlib.suppress(OSError):
                is_over, facts = _read(path)
                if facts is not None and facts.kernel == self._kernel:
                    (over if is_over else going_on).append(facts)
        return over, going_on

    def forget(self, facts: LifeFacts) -> None:
        """Remove what a life that is over has left: everybody knows."""
        for path in sorted(self._folder.glob(f"*{SUFFIX}"))[:FILES_MAX]:
            with contextlib.suppress(OSError):
                if _read(path) == (True, facts):
                    path.unlink()


def _kernel() -> str:
    """What no other kernel has, and this one no more after a reboot."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:  # not Linux's
        return f"{platform.node()} {platform.system()}"


def is_running(process: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read(path: Path) -> tuple[bool, LifeFacts | None]:
    """Whether nothing of a life runs any more, and what it has written; None if that cannot be read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            is_over = True
        except BlockingIOError:
            is_over = False
        return is_over, _facts(os.read(descriptor, 1 << 16), path.stem)
    finally:
        os.close(descriptor)


def _facts(data: bytes, name: str) -> LifeFacts | None:
    try:
        worker_id, process, member_id, generation, kernel, alone_in = json.loads(data)
    except ValueError:  # of another version, or cut off
        return None
    if not (isinstance(worker_id, str) and isinstance(member_id, str) and isinstance(kernel, str)):
        return None
    if not (isinstance(process, int) and isinstance(generation, int) and isinstance(alone_in, int)):
        return None
    return LifeFacts(
        worker_id=worker_id,
        process=process,
        member_id=member_id,
        generation=generation,
        kernel=kernel,
        name=name,
        alone_in=alone_in,
    )
