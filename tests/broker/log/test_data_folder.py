"""A data folder belongs to one process and one node"""

import errno
import os
import uuid
from pathlib import Path

import pytest

from tests.sim.disk import SimulatedDisk
from tidemill.broker.log.data_folder import cannot_use, claim, lock_folder
from tidemill.broker.log.identity import FolderRefused

ID = uuid.UUID(int=3)


def test_a_lock_is_held_until_it_is_given_back(tmp_path: Path) -> None:
    _, descriptor = lock_folder(str(tmp_path / "data"))
    with pytest.raises(FolderRefused, match="in use by another process"):
        lock_folder(str(tmp_path / "data"))
    os.close(descriptor)
    os.close(lock_folder(str(tmp_path / "data"))[1])


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderRefused, match="cannot write to"):
        lock_folder(str(tmp_path / "file" / "data"))


def test_a_folder_is_claimed_once_and_for_one_node() -> None:
    disk = SimulatedDisk()
    identity = claim(disk.root, 1, None, ID)
    assert claim(disk.root, 1, identity.cluster_id, uuid.UUID(int=4)) == identity
    with pytest.raises(FolderRefused, match=r"node\.id 1, not 2"):
        claim(disk.root, 2, None, ID)


def test_a_full_disk_and_data_without_an_owner_are_refused() -> None:
    disk = SimulatedDisk(capacity_bytes=0)
    with pytest.raises(FolderRefused, match="cannot write to"):
        claim(disk.root, 1, None, ID)
    disk = SimulatedDisk()
    disk.root.subdirectory("t-0")
    with pytest.raises(FolderRefused, match="restore that file"):
        claim(disk.root, 1, None, ID)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EACCES, "Permission denied", "d/t-0/x.log"), "cannot use d/t-0/x.log: Permission denied; every"),
        (OSError(errno.EACCES, "Permission denied", b"d/x"), "cannot use d/x: Permission denied; everything in d has"),
        (OSError(errno.ENOSPC, "No space left on device"), "cannot use d: No space left on device; make room"),
        (OSError(errno.EIO, "Input/output error", "d/x"), "cannot use d/x: Input/output error; repair the disk"),
        (OSError("gone"), "cannot use d: gone; everything in d has"),
    ],
)
def test_what_refuses_a_start_is_named_with_what_to_do(error: OSError, says: str) -> None:
    assert str(cannot_use("d", error)).startswith(says)
