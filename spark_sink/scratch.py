"""A folder for one run, and the end of those that runs left behind

Spark, the JVM and Python's bytecode cache fill a folder that is worthless after the run. A run that is killed cannot
remove its own, so each carries its process id in its name and the next run removes those whose process is gone.

A run holds a lock on its folder. A run in another container that has the same temporary folder does not see its
process, and sees the lock; and systemd, which removes what lay unread there for days, passes over what is locked.
"""

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(r"tidemill-spark-(\d+)-\w+")


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder, sweep old ones, and remove it in the end."""
    root = Path(tempfile.gettempdir())
    sweep(root)
    folder = Path(tempfile.mkdtemp(prefix=f"tidemill-spark-{os.getpid()}-", dir=root))
    with _held(folder):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def sweep(root: Path) -> None:
    """Remove this user's folders of processes that no longer run, as far as anybody can tell."""
    for entry in root.iterdir():
        match = _NAME.fullmatch(entry.name)
        with contextlib.suppress(OSError):  # somebody else was faster
            ours = match is not None and entry.lstat().st_uid == os.getuid()
            if match and ours and not _runs(int(match.group(1))) and not _is_held(entry):
                shutil.rmtree(entry, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: the process id has to do
        return False
    finally:
        os.close(descriptor)
    return False


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
