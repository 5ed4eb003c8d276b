"""Changes over a folder are seen through the overlay, listed, and never on the disk."""

from pathlib import Path

import pytest

from tidemill.core.runtime.disk import Directory, File
from tidemill.core.runtime.overlay import Cut, OverlayDirectory, Removed, Renamed, Written


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def filled(tmp_path: Path) -> OverlayDirectory:
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").write_bytes(b"bbb")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "c").write_bytes(b"c")
    return OverlayDirectory(tmp_path)


def test_an_untouched_folder_is_shown_as_it_is_and_has_no_changes(tmp_path: Path) -> None:
    overlay: Directory = filled(tmp_path)
    assert overlay.list() == ["a", "b", "inside"]
    assert overlay.read("a") == b"0123456789"
    assert overlay.is_directory("inside")
    assert overlay.subdirectory("inside").read("c") == b"c"
    assert overlay.modified_ms("a") > 0
    assert not overlay.exists("d")
    assert filled_changes(overlay) == []


def filled_changes(overlay: Directory) -> list[object]:
    assert isinstance(overlay, OverlayDirectory)
    return list(overlay.changes())


def test_every_kind_of_change_is_seen_and_listed_and_the_disk_stays_as_it_was(tmp_path: Path) -> None:
    overlay = filled(tmp_path)
    before = contents(tmp_path)
    file: File = overlay.open("a")
    file.truncate(4)
    assert (file.size(), file.read_at(2, 10), bytes(file.view_at(0, 3))) == (4, b"23", b"012")
    file.close()
    overlay.remove("b")
    overlay.remove("b")
    overlay.replace("d", b"new")
    file = overlay.create("e")
    file.write_at(2, b"xy")
    assert overlay.read("e") == b"\0\0xy"
    assert overlay.list() == ["a", "d", "e", "inside"]
    assert overlay.changes() == [
        Cut(name="a", size_bytes=4, cut_bytes=6),
        Removed(name="b", size_bytes=3),
        Written(name="d", data=b"new", is_new=True),
        Written(name="e", data=b"\0\0xy", is_new=True),
    ]
    assert contents(tmp_path) == before


def test_writing_what_is_there_already_is_no_change(tmp_path: Path) -> None:
    overlay = filled(tmp_path)
    overlay.replace("b", b"bbb")
    overlay.open("a").write_at(3, b"3")
    assert overlay.changes() == []
    overlay.open("a").write_at(3, b"X")
    assert overlay.changes() == [Written(name="a", data=b"012X456789", is_new=False)]


def test_what_is_left_of_a_file_that_was_cut_may_be_written_again(tmp_path: Path) -> None:
    overlay = filled(tmp_path)
    file = overlay.open("a")
    file.truncate(4)
    file.write_at(0, b"0123")
    assert overlay.changes() == [Cut(name="a", size_bytes=4, cut_bytes=6)]
    file.write_at(2, b"234")
    assert overlay.changes() == [Written(name="a", data=b"01234", is_new=False)]


def test_a_renamed_and_removed_file_is_a_removed_file(tmp_path: Path) -> None:
    overlay = filled(tmp_path)
    overlay.rename("a", "a.deleted")
    assert overlay.read("a.deleted") == b"0123456789"
    overlay.remove("a.deleted")
    assert overlay.changes() == [Removed(name="a", size_bytes=10)]


def test_a_renamed_file_is_renamed_and_cut_without_being_read(tmp_path: Path) -> None:
    overlay = filled(tmp_path)
    overlay.rename("a", "b")
    overlay.open("b").truncate(9)
    assert overlay.read("b") == b"012345678"
    assert overlay.changes() == [
        Renamed(name="b", old="a", replaced_bytes=3),
        Cut(name="b", size_bytes=9, cut_bytes=1),
    ]
    overlay.rename("b", "new")
    assert overlay.changes() == [
        Removed(name="b", size_bytes=3),
        Renamed(name="new", old="a", replaced_bytes=-1),
        Cut(name="new", size_bytes=9, cut_bytes=1),
    ]


def test_a_missing_file_is_the_error_the_disk_gives(tmp_path: Path) -> None:
    overlay = filled(tmp_path)
    with pytest.raises(FileNotFoundError):
        overlay.open("nothing")
    with pytest.raises(FileNotFoundError):
        OverlayDirectory(tmp_path / "nothing")
