"""A worker sees environments come and go"""

import asyncio
import json
import shutil
import threading
from pathlib import Path

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from tests.connect.environments.test_folder import put
from tidemill.connect.api import Plugin, PluginKind
from tidemill.connect.environments import in_use
from tidemill.connect.environments import shelf as shelf_module
from tidemill.connect.environments.folder import MAKING, Folder
from tidemill.connect.environments.shelf import Shelf
from tidemill.connect.validation import describe


class _Settings(BaseModel):
    topic: str


NAMELESS = Plugin(name="Nameless", kind=PluginKind.SOURCE, version="1", config=_Settings, task=lambda settings: None)  # type: ignore[arg-type,return-value]


def put_described(folder: Folder, name: str) -> None:
    """An environment with a plugin."""
    file = Path(put(folder, name).path, in_use.DESCRIPTION)
    plugins = [describe(NAMELESS, "m:a").model_dump(mode="json")]
    file.write_text(json.dumps({**json.loads(file.read_text()), "plugins": plugins}))


async def test_without_a_folder_there_is_nothing_to_see() -> None:
    shelf = Shelf(None)
    async with shelf.kept():
        await shelf.look()
    assert (shelf.plugins, shelf.environments, shelf.problem) == ((), (), "")


async def test_what_comes_and_goes_is_seen_and_told(folder: Folder) -> None:
    shelf = Shelf(folder)
    with capture_logs() as lines:
        await shelf.look()
        nothing = shelf.plugins
        put(folder, "a")
        put(folder, "b", python="3.9")
        await shelf.look()
        assert [each.called for each in shelf.environments] == ["a==1.0", "b==1.0"]
        seen = shelf.plugins
        await shelf.look()
        assert shelf.plugins is seen is not nothing or seen == nothing
        folder.remove(folder.find("a", "1.0"), force=False)
        await shelf.look()
    assert [each.called for each in shelf.environments] == ["b==1.0"]
    assert [line["event"] for line in lines] == [
        "plugin environment found",
        "plugin environment not used",
        "plugin environment gone",
    ]


async def test_one_that_could_not_be_read_is_read_again(folder: Folder) -> None:
    made = put(folder, "a")
    description = Path(made.path, in_use.DESCRIPTION)
    description.rename(f"{description}.away")
    shelf = Shelf(folder)
    await shelf.look()
    assert "it is no plugin environment" in shelf.environments[0].problem
    Path(f"{description}.away").rename(description)
    await shelf.look()
    assert shelf.environments[0].problem == ""


@pytest.mark.parametrize("content", [b"\xff", b"\0" * 200, b"[]", b"{}", b"[" * 100_000, b"NAMELESS"])
async def test_one_bad_description_is_the_problem_of_one(folder: Folder, content: bytes) -> None:
    put(folder, "a")
    shelf = Shelf(folder)
    async with shelf.kept():
        file = Path(put(folder, "b").path, in_use.DESCRIPTION)
        if content == b"NAMELESS":
            nameless = describe(NAMELESS, "m:a").model_dump(mode="json")
            nameless["settings"][0]["names"] = []
            content = json.dumps({**json.loads(file.read_text()), "plugins": [nameless]}).encode()
        file.write_bytes(content)
        await shelf.look()
        assert [bool(each.problem) for each in shelf.environments] == [False, True]


async def test_what_cannot_be_used_changes_nothing_each_time_it_is_read_again(folder: Folder) -> None:
    (Path(folder.path) / "lost+found").mkdir(parents=True)
    put_described(folder, "a")
    shelf = Shelf(folder)
    await shelf.look()
    seen = shelf.plugins
    await shelf.look()
    assert shelf.plugins is seen and seen


async def test_nothing_that_goes_wrong_ends_the_looking(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> None:
        raise RuntimeError("of a kind that nobody thought of")

    shelf = Shelf(folder)
    with monkeypatch.context() as patch:
        patch.setattr(folder, "names", wrong)
        await shelf.look()
    assert shelf.problem == f"{folder.path} cannot be read: RuntimeError: of a kind that nobody thought of"
    await shelf.look()
    assert shelf.problem == ""


async def test_a_folder_that_cannot_be_read_leaves_what_was_known(folder: Folder, tmp_path: Path) -> None:
    put(folder, "a")
    shelf = Shelf(folder)
    await shelf.look()
    shutil.move(folder.path, tmp_path / "away")
    Path(folder.path).write_text("no folder")
    with capture_logs() as lines:
        await shelf.look()
        await shelf.look()
    assert [each.called for each in shelf.environments] == ["a==1.0"]
    assert shelf.problem == f"{folder.path} cannot be read: Not a directory"
    assert len(lines) == 1, "told once"
    Path(folder.path).unlink()
    shutil.move(tmp_path / "away", folder.path)
    await shelf.look()
    assert shelf.problem == ""


async def test_leftovers_are_removed_at_the_start_and_it_looks_by_itself(folder: Folder) -> None:
    (Path(folder.path) / f"{MAKING}1").mkdir(parents=True)
    shelf = Shelf(folder)
    async with shelf.kept():
        assert not (Path(folder.path) / f"{MAKING}1").exists()
        put(folder, "a")
        async with asyncio.timeout(10):
            while not shelf.environments:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_a_folder_that_does_not_answer_holds_up_nobody_for_long(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "a")
    answer = threading.Event()
    names = folder.names
    monkeypatch.setattr(folder, "names", lambda: answer.wait(60) and names())
    monkeypatch.setattr(shelf_module, "LOOK_TIMEOUT_S", 0.2)
    shelf = Shelf(folder)
    for _ in range(3):
        async with asyncio.timeout(5):
            await shelf.look()
        assert shelf.problem == f"{folder.path} cannot be read: it does not answer within 0.2 s"
    answer.set()
    async with asyncio.timeout(10):
        while not shelf.environments:
            await asyncio.sleep(0.02)
            await shelf.look()
