"""What `syncfs` is trusted with"""

import ctypes
import errno
import os
import platform
from pathlib import Path

import pytest

from tests.core.runtime.page_cache import dirty_pages
from tidemill.core.runtime import file_system_sync as module
from tidemill.core.runtime.file_system_sync import HONEST, FileSystemSync, file_system_sync, file_system_type

OVERLAYFS, FUSE, TMPFS, EXT4 = 0x794C7630, 0x65735546, 0x01021994, 0xEF53

linux = pytest.mark.skipif(platform.system() != "Linux", reason="syncfs is Linux's")


@pytest.fixture
def honest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever machine the tests run on."""
    monkeypatch.setattr(platform, "release", lambda: "6.1.0-18-amd64")
    monkeypatch.setattr(module, "file_system_type", lambda _path: EXT4)


@linux
@pytest.mark.usefixtures("honest")
def test_everything_in_the_folder_is_on_the_disk_afterwards(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    sync = file_system_sync(str(tmp_path))
    assert sync is not None
    files = [os.open(tmp_path / name, os.O_CREAT | os.O_RDWR) for name in ("a", "t-0/b")]
    for descriptor in files:
        os.write(descriptor, b"x" * 50_000)
    then: list[int] = []
    sync(lambda: then.extend(map(dirty_pages, files)))
    assert then == [0, 0], "one that was changed is synced behind all of them"
    assert [dirty_pages(descriptor) for descriptor in files] == [0, 0]
    for descriptor in files:
        os.close(descriptor)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_an_error_is_raised(tmp_path: Path, number: int) -> None:
    synced: list[int] = []

    def syncfs(descriptor: int) -> int:
        synced.append(descriptor)
        ctypes.set_errno(number)
        return -1

    with pytest.raises(OSError) as caught:
        FileSystemSync(str(tmp_path), syncfs)(lambda: None)
    assert caught.value.errno == number
    assert len(synced) == 1


def test_a_file_system_that_was_given_up_is_told_by_one_of_its_files(tmp_path: Path) -> None:
    """Of ext4 under Linux 6.1, made read-only by its own error, the kernel says that all is synced."""

    def sync_one() -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with pytest.raises(OSError, match="Read-only file system"):
        FileSystemSync(str(tmp_path), lambda _descriptor: 0)(sync_one)


@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize("release", ["5.16.20", "5.9.0-rc1", "4.19.0", "unknown"])
def test_older_kernels_do_not_tell_every_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    assert file_system_sync(str(tmp_path)) is None


@linux
@pytest.mark.usefixtures("honest")
@pytest.mark.parametrize("kind", [OVERLAYFS, FUSE, TMPFS])
def test_file_systems_that_do_not_tell_every_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    """On overlayfs a whole sync says that all is well when the data of its upper layer could not be written."""
    assert file_system_sync(str(tmp_path)) is not None
    monkeypatch.setattr(module, "file_system_type", lambda _path: kind)
    assert file_system_sync(str(tmp_path)) is None


@linux
@pytest.mark.usefixtures("honest")
def test_a_folder_that_is_a_link_into_another_file_system(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "near").symlink_to(tmp_path / "t-0")
    assert file_system_sync(str(tmp_path)) is not None
    (tmp_path / "t-1").symlink_to("/proc/self")
    assert file_system_sync(str(tmp_path)) is None


@linux
def test_the_type_is_what_the_kernel_says() -> None:
    assert file_system_type("/proc") == 0x9FA0
    assert 0x9FA0 not in HONEST
    with pytest.raises(FileNotFoundError):
        file_system_type("/nowhere/at/all")
