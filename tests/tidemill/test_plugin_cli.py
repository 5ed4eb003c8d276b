"""`tidemill plugin`, on a folder and against a worker"""

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from tests.connect.environments.wheels import hash_of, line_of, make_plugin
from tidemill import services
from tidemill.plugin_cli import app

if TYPE_CHECKING:
    from tidemill.services import Service

pytestmark = pytest.mark.integration


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip finds packages, and nowhere else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "wheels"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_folder_is_filled_listed_and_emptied(tmp_path: Path, wheels: Path) -> None:
    folder = ["--folder", str(tmp_path / "plugins")]
    assert "nothing is installed" in run("list", *folder).output
    wheel = make_plugin(wheels, "1.0")
    for arguments in (("shelf==1.0", "--hash", hash_of(wheel)), (line_of(wheel),)):
        result = run("install", *arguments, *folder)
        assert (result.exit_code, result.output) == (0, "installed shelf==1.0: Shelf 1.0\n"), "again is no error"
    listed = tmp_path / "requirements.txt"
    listed.write_text(line_of(make_plugin(wheels, "2.0")).replace(" --hash", " \\\n  --hash"))
    assert run("install", "-r", str(listed), *folder).exit_code == 0
    assert run("install", str(make_plugin(tmp_path / "elsewhere", "3.0")), *folder).exit_code == 0
    found = json.loads(run("list", "--json", *folder).output)
    assert [(each["name"], each["version"], each["plugins"][0]["class"]) for each in found] == [
        ("shelf", version, "Shelf") for version in ("1.0", "2.0", "3.0")
    ]
    assert run("remove", "shelf==2.0", *folder).output == "removed shelf==2.0\n"
    result = run("remove", "shelf==2.0", *folder)
    assert result.exit_code == 1 and "installed are: shelf==1.0, shelf==3.0" in result.output
    assert "Shelf 3.0" in run("list", *folder).output


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("install",), 2, "nothing to install"),
        (("install", "shelf==1.0"), 2, "without a hash: write NAME==VERSION --hash"),
        (("install", "shelf==1.0", "--hash", f"sha256:{'0' * 64}"), 1, "DO NOT MATCH THE HASHES"),
        (("install", "a==1", "b==1", "--hash", f"sha256:{'0' * 64}"), 2, "--hash goes with one NAME==VERSION"),
        (("install", "missing-1.0-py3-none-any.whl"), 2, "missing-1.0-py3-none-any.whl: No such file"),
        (("install", "-r", "no-such-file"), 1, "cannot read no-such-file"),
        (("remove", "shelf"), 2, "say which version: NAME==VERSION"),
        (("remove", "shelf==9"), 1, "installed are: none"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, wheels: Path, arguments: tuple[str, ...], status: int, why: str
) -> None:
    make_plugin(wheels, "1.0")
    result = run(*arguments, "--folder", str(tmp_path / "plugins"))
    assert result.exit_code == status and why in result.output, result.output


@pytest.fixture
def url(tidemill_broker: "Service", tmp_path: Path, wheels: Path) -> Iterator[str]:
    group = f"plugin-cli-{uuid.uuid4().hex[:8]}"
    settings = {f"{role}.storage.topic": f"{group}-{role}" for role in ("config", "offset", "status")}
    settings |= {"group.id": group, "plugin.install.packages": "shelf"}
    settings |= {"plugin.environments": str(tmp_path / "plugins")}
    log = tmp_path / "worker.log"
    worker = services.connect_worker("worker", tidemill_broker.facts["address"], settings=settings, log=log).start()
    yield worker.facts["url"]
    worker.stop()


def test_a_worker_is_asked_and_its_refusals_are_told(url: str, wheels: Path) -> None:
    def ask(*arguments: str) -> Result:
        return run(*arguments, "--url", url)

    wheel = make_plugin(wheels, "1.0")
    assert "nothing is installed" in ask("list").output
    assert ask("install", "shelf==1.0", "--hash", hash_of(wheel)).output == "installed shelf==1.0: Shelf 1.0\n"
    result = ask("install", str(wheel))
    assert (
        result.exit_code == 2 and "is a file of this machine: install it on the worker's with --folder" in result.output
    )
    result = ask("install", "other==1.0", "--hash", f"sha256:{'0' * 64}")
    assert result.exit_code == 1 and "plugin.install.packages does not list: other" in result.output
    _create(url, "c")
    (found,) = json.loads(ask("list", "--json").output)
    assert found["used_by"] == ["c"]
    result = ask("remove", "shelf==1.0")
    assert result.exit_code == 1 and "shelf==1.0 is used by c" in result.output
    assert ask("remove", "shelf==1.0", "--force").output == "removed shelf==1.0\n"
    assert json.loads(ask("list", "--json").output) == []


def _create(url: str, name: str) -> None:
    from tidemill.rest_client import RestClient

    config: dict[str, Any] = {"connector.class": "Shelf", "topic": name}
    RestClient(url).ask("PUT", "connectors", name, "config", body=config)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if RestClient(url).ask("GET", "connectors")[:1] == [name]:
            return
        time.sleep(0.05)
