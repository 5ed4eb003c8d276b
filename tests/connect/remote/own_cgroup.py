"""A part of cgroup v2 for one test, where the machine lets it be made"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.connect.remote.cgroups import NEEDED

MOUNT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def own_cgroup() -> Iterator[Path]:
    """A group below the machine's root; skips the test where there is no such thing."""
    available = _words(MOUNT / "cgroup.controllers")
    if not set(NEEDED) <= available:
        pytest.skip("needs cgroup v2 with the controllers cpu and memory, mounted at /sys/fs/cgroup")
    missing = set(NEEDED) - _words(MOUNT / "cgroup.subtree_control")
    folder = MOUNT / f"tidemill-test-{os.getpid()}"
    try:
        if missing:
            (MOUNT / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in missing), encoding="ascii")
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"needs to make a cgroup, which this process may not: {error.strerror}")
    try:
        yield folder
    finally:
        folder.rmdir()
        if missing:
            (MOUNT / "cgroup.subtree_control").write_text(" ".join(f"-{each}" for each in missing), encoding="ascii")


def _words(file: Path) -> set[str]:
    try:
        return set(file.read_text(encoding="ascii").split())
    except OSError:
        return set()
