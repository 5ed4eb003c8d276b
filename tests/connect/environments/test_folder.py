"""What is in the folder of plugin environments, and how it goes"""

import json
import os
import threading
from pathlib import Path

import pytest

from tidemill.connect.environments import in_use
from tidemill.connect.environments.folder import (
    FORMAT,
    GONE,
    MAKING,
    PYTHON,
    Description,
    Environment,
    Folder,
    FolderProblem,
    InUse,
    NotThere,
)


def put(folder: Folder, name: str, version: str = "1.0", python: str = PYTHON) -> Environment:
    """An environment with nothing but its description."""
    with folder.making() as (made, _):
        described = Description(
            format=FORMAT,
            name=name,
            version=version,
            python=python,
            requirements=(),
            installed="2026-03-01T12:00:00+00:00",
            plugins=(),
        )
        Path(made, in_use.DESCRIPTION).write_text(described.model_dump_json())
        with folder.placing():
            return folder.place(made, f"{name}-{version}-12345678")


def test_a_folder_that_is_not_there_has_nothing_in_it(folder: Folder) -> None:
    assert folder.environments() == ()
    folder.sweep()
    assert not Path(folder.path).exists()


def test_what_is_found_is_what_was_put_there_and_what_cannot_be_used_is_told(folder: Folder) -> None:
    assert put(folder, "a").problem == ""
    put(folder, "b", python="3.9")
    (Path(folder.path) / "c").mkdir()
    (Path(folder.path) / "d").mkdir()
    (Path(folder.path) / "d" / in_use.DESCRIPTION).write_text('{"format": 99, "name": "d", "version": "1"}')
    (Path(folder.path) / "e").mkdir()
    (Path(folder.path) / "e" / in_use.DESCRIPTION).write_bytes(b"\xff")
    (Path(folder.path) / "notes.txt").write_text("no environment, and nobody's business")
    found = {each.called: each.problem for each in folder.environments()}
    assert list(found) == ["a==1.0", "b==1.0", "c", "d==1", "e"]
    assert found["a==1.0"] == ""
    assert found["b==1.0"].startswith(f"it was made for Python 3.9, and this is {PYTHON}: remove it")
    assert found["c"] == "it is no plugin environment: No such file or directory"
    assert found["d==1"].startswith("it was made by another version of Tidemill (format 99, and this one has 1)")
    assert found["e"].startswith("what describes it cannot be read: ")


def test_what_a_later_version_says_beyond_is_passed_over(folder: Folder) -> None:
    file = Path(put(folder, "a").path, in_use.DESCRIPTION)
    file.write_text(json.dumps({**json.loads(file.read_text()), "more": [1]}))
    assert [each.problem for each in folder.environments()] == [""]


def test_a_name_is_no_beginning_of_another(folder: Folder) -> None:
    made = put(folder, "shelf-secret", "1.0")
    rest = os.path.basename(made.path).removeprefix("shelf-")
    with pytest.raises(NotThere):
        folder.find("shelf", rest)
    assert folder.find("shelf-secret", "1.0") == made


def test_who_may_only_read_cannot_hold_up_others(folder: Folder) -> None:
    put(folder, "a")
    assert Path(folder.path, ".lock").stat().st_mode & 0o777 == 0o600


def test_who_is_asked_for_is_found_or_those_there_are_named(folder: Folder) -> None:
    put(folder, "a", "1.0")
    put(folder, "a", "2.0")
    assert folder.find("a", "2.0").called == "a==2.0"
    with pytest.raises(NotThere, match=r"a==3\.0 is not installed in .*; installed are: a==1\.0, a==2\.0$"):
        folder.find("a", "3.0")


def test_what_is_removed_is_gone_unless_it_is_used(folder: Folder) -> None:
    made = put(folder, "a")
    file = in_use.hold(made.path)
    with pytest.raises(InUse, match=r"processes run in a==1\.0: tasks, or what stays ready"):
        folder.remove(made, force=False)
    assert folder.environments() == (made,)
    folder.remove(made, force=True)
    os.close(file)
    assert os.listdir(folder.path) == [".lock"]
    with pytest.raises(NotThere, match=r"not installed in .* any more"):
        folder.remove(made, force=False)


def test_nobody_comes_between_the_question_whether_it_is_used_and_its_end(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wants to hold it just then gets nothing, rather than one that is being deleted."""
    made = put(folder, "a")
    begun, held = threading.Event(), list[object]()

    def come() -> None:
        begun.set()
        try:
            held.append(in_use.hold(made.path))
        except OSError as error:
            held.append(type(error))

    other = threading.Thread(target=come)
    rename = os.rename

    def slow(*paths: str) -> None:
        other.start()
        begun.wait(10)
        other.join(0.2)
        rename(*paths)

    monkeypatch.setattr(os, "rename", slow)
    folder.remove(made, force=False)
    other.join(10)
    assert held == [FileNotFoundError]


def test_one_that_cannot_be_used_can_be_removed(folder: Folder) -> None:
    put(folder, "a", python="3.9")
    (Path(folder.path) / "c-1").mkdir()
    for each in (folder.find("a", "1.0"), folder.find("c", "1")):
        folder.remove(each, force=False)
    assert folder.environments() == ()


def test_leftovers_go_and_what_somebody_is_at_stays(folder: Folder) -> None:
    with folder.making() as (made, _):
        for name in (f"{MAKING}1", f"{GONE}2"):
            (Path(folder.path) / name / "lib").mkdir(parents=True)
        folder.sweep()
        assert sorted(os.listdir(folder.path)) == [".lock", os.path.basename(made)]
    assert os.listdir(folder.path) == [".lock"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderProblem, match=r"file.* cannot be written: "), Folder(f"{tmp_path}/file/plugins").making():
        pass
