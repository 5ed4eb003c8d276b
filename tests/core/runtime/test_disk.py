"""The real disk behind the seam"""

import errno
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.runtime.page_cache import dirty_pages
from tidemill.core.runtime.disk import (
    MAPPED_READ_BYTES_MIN,
    RESERVED_BYTES_MAX,
    RESERVED_FROM_BYTES,
    OsDirectory,
    OsFile,
    is_locked,
    lock_directory,
    raise_open_files_limit,
)
from tidemill.core.runtime.overlay import OverlayDirectory


@pytest.fixture
def directory(tmp_path: Path) -> OsDirectory:
    return OsDirectory(tmp_path / "a" / "b")


def test_a_file_is_written_and_read_by_position(directory: OsDirectory) -> None:
    file = directory.create("f")
    file.write_at(0, b"hello")
    file.write_at(3, memoryview(b"xyz"))
    assert (file.size(), file.read_at(0, 100), file.read_at(4, 1)) == (6, b"helxyz", b"y")
    assert file.read_at(6, 10) == b""
    file.truncate(2)
    assert file.read_at(0, 100) == b"he"
    file.sync()
    file.close()
    file.close()
    assert directory.open("f").read_at(0, 10) == b"he"


def test_creating_empties_what_is_there(directory: OsDirectory) -> None:
    directory.create("f").write_at(0, b"old")
    assert directory.create("f").size() == 0


@pytest.mark.parametrize("size_bytes", [10, MAPPED_READ_BYTES_MIN])
def test_views_show_the_bytes_and_outlive_the_file(directory: OsDirectory, size_bytes: int) -> None:
    file = directory.create("f")
    file.write_at(0, b"a" * size_bytes)
    first = file.view_at(0, size_bytes)
    file.write_at(size_bytes, b"b" * size_bytes)
    second = file.view_at(size_bytes, size_bytes)
    file.close()
    directory.remove("f")
    assert (bytes(first), bytes(second)) == (b"a" * size_bytes, b"b" * size_bytes)


def test_short_writes_are_finished(directory: OsDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, memoryview(data)[:3], at))
    file = directory.create("f")
    file.write_at(2, b"0123456789")
    assert file.read_at(0, 100) == b"\0\0" + b"0123456789"


def test_a_file_that_takes_no_more_bytes_is_an_error(directory: OsDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda _fd, _data, _at: 0)
    with pytest.raises(OSError, match="no more bytes"):
        directory.create("f").write_at(0, b"abc")


def test_short_reads_are_finished(directory: OsDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    file: OsFile = directory.create("f")
    file.write_at(0, b"0123456789")
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: whole(fd, min(size, 4), at))
    assert file.read_at(1, 100) == b"123456789"


def test_a_file_that_cannot_be_read_is_named(directory: OsDirectory) -> None:
    directory.subdirectory("there")
    with pytest.raises(IsADirectoryError) as raised:
        directory.read("there")  # it can be opened
    assert raised.value.filename == f"{directory.path}/there"


def test_what_was_just_written_is_cached_and_prefetch_reads_to_the_end(directory: OsDirectory) -> None:
    file = directory.create("f")
    file.write_at(0, b"x" * 3_000_000)
    assert file.is_cached(0, 3_000_000)
    file.prefetch(0, 3_000_000)
    file.prefetch(2_999_999, 10**9)


def test_a_page_that_is_not_there_is_not_cached(directory: OsDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    file = directory.create("f")
    file.write_at(0, b"x" * 10)

    def refuse(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", refuse)
    assert not file.is_cached(0, 10)


def test_a_file_system_that_cannot_tell_counts_as_cached(
    directory: OsDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = directory.create("f")

    def unsupported(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "preadv", unsupported)
    assert file.is_cached(0, 10)


def test_names(directory: OsDirectory) -> None:
    directory.create("f").close()
    directory.subdirectory("d").create("inner").close()
    assert directory.list() == ["d", "f"]
    assert (directory.is_directory("d"), directory.is_directory("f"), directory.exists("x")) == (True, False, False)
    directory.rename("f", "g")
    directory.sync()
    assert directory.modified_ms("g") > 1_700_000_000_000
    directory.remove("g")
    directory.remove("g")
    directory.remove_tree("d")
    assert directory.list() == []


def test_the_file_system_is_synced_as_a_whole_or_not_at_all(
    directory: OsDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = directory.file_system_sync()
    if sync is not None:
        file = directory.create("f")
        file.write_at(0, b"x" * 5000)
        sync(file.sync)
        assert dirty_pages(file.descriptor) == 0
    monkeypatch.setattr(platform, "release", lambda: "5.7.19-old")
    assert directory.file_system_sync() is None


def test_files_of_a_folder_and_of_those_below_it_are_synced_together(
    directory: OsDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [directory.create("f"), directory.subdirectory("d").create("inner")]
    for file in files:
        file.write_at(0, b"x" * 5000)
    opened: list[int] = []
    really = os.open

    def noted(path: str, flags: int) -> int:
        opened.append(really(path, flags))
        return opened[-1]

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", noted)
        sync = directory.files_sync()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(*opened)
    sync(files)
    assert [dirty_pages(file.descriptor) for file in files] == [0, 0]
    sync(files[:1])
    sync([])
    files[1].close()
    with pytest.raises(ValueError, match="negative"):
        sync(files)


def test_replace_swaps_the_whole_content_and_leaves_nothing_else(directory: OsDirectory) -> None:
    directory.replace("f", b"first, longer")
    directory.replace("f", b"second")
    assert directory.read("f") == b"second"
    assert directory.list() == ["f"]


def test_a_replacement_that_finds_no_room_takes_none(directory: OsDirectory) -> None:
    directory.replace("name", b"before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            directory.replace("name", bytes(20_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert directory.read("name") == b"before"
    assert directory.list() == ["name"]


def test_the_limit_of_open_files_is_raised_to_what_is_allowed() -> None:
    limit = raise_open_files_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, limit)


@pytest.mark.parametrize("kind", [OsDirectory, OverlayDirectory])
def test_a_descriptor_is_closed_once_however_many_close_at_the_same_time(
    kind: type[OsDirectory] | type[OverlayDirectory], directory: OsDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second close would hit whatever else in the process has been given the number meanwhile."""
    directory.replace("f", b"x")
    file = kind(directory.path).open("f")
    file.read_at(0, 1)
    closed: list[int] = []
    really = os.close

    def slowly(descriptor: int) -> None:
        closed.append(descriptor)
        if len(closed) == 1:
            file.close()  # as another thread may, while the system closes
        really(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "close", slowly)
        file.close()
    assert len(closed) == 1


def test_a_lock_holds_until_it_is_closed(directory: OsDirectory) -> None:
    held = lock_directory(directory)
    with pytest.raises(BlockingIOError):
        lock_directory(directory)
    os.close(held)
    os.close(lock_directory(directory))


def allocated_bytes(directory: OsDirectory, name: str) -> int:
    return Path(directory.path, name).stat().st_blocks * 512


@pytest.mark.skipif(platform.system() != "Linux", reason="fallocate is Linux's")
def test_a_growing_file_has_room_set_aside_and_gives_it_back(directory: OsDirectory) -> None:
    file, piece, size = directory.create("f"), b"x" * (1 << 20), 0
    while size < RESERVED_FROM_BYTES:
        file.write_at(size, piece)
        size += len(piece)
    file.sync()
    assert allocated_bytes(directory, "f") < size + len(piece), "small files are left alone"
    while size < 12 * RESERVED_FROM_BYTES:
        file.write_at(size, piece)
        size += len(piece)
        file.sync()
        assert allocated_bytes(directory, "f") <= size + min(RESERVED_BYTES_MAX, size // 4) + len(piece)
    file.write_at(size, piece)
    size += len(piece)
    file.sync()
    assert allocated_bytes(directory, "f") > size + len(piece)
    assert file.size() == size, "what is set aside is no part of the file"
    assert file.read_at(size, 10) == b""
    file.truncate(size)
    assert allocated_bytes(directory, "f") < size + len(piece)
    file.write_at(size, piece)
    assert file.read_at(size - 1, 3 << 20) == b"x" * (len(piece) + 1)


@pytest.mark.skipif(platform.system() != "Linux", reason="fallocate is Linux's")
def test_room_can_be_set_aside_in_a_small_file(directory: OsDirectory) -> None:
    file = directory.create("f")
    file.write_at(0, b"x")
    assert file.set_aside(1, 1 << 20)
    assert (allocated_bytes(directory, "f") >> 20, file.size()) == (1, 1)


def test_a_disk_without_room_to_set_aside_takes_writes(directory: OsDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.core.runtime.disk.fallocate", lambda *_: -1)
    file = directory.create("f")
    file.write_at(RESERVED_FROM_BYTES, b"end")
    assert file.read_at(RESERVED_FROM_BYTES, 10) == b"end"
    assert not file.set_aside(0, 10)


def test_a_lock_of_ours_and_of_a_jvm_is_seen_from_outside(directory: OsDirectory) -> None:
    assert not is_locked(directory.path), "never locked"
    held = lock_directory(directory)
    assert is_locked(directory.path)
    os.close(held)
    assert not is_locked(directory.path)
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, f"{directory.path}/.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert is_locked(directory.path)
        other.communicate()
    assert not is_locked(directory.path)
