"""A folder for one run, and the end of those that runs left behind

Spark, the JVM and Python's bytecode cache fill a folder that is worthless after the run. A run that is killed cannot
remove its own, so each carries its process id in its name and the next run removes those whose process is gone.
"""

import contextlib
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
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove this user's folders of processes that no longer run."""
    for entry in root.iterdir():
        match = _NAME.fullmatch(entry.name)
        with contextlib.suppress(OSError):  # somebody else was faster
            if match and entry.stat().st_uid == os.getuid() and not _runs(int(match.group(1))):
                shutil.rmtree(entry, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
