"""Plugins are installed, used side by side and removed while the worker runs"""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tests.connect.environments.wheels import hash_of, line_of, make_plugin
from tidemill.connect.config import parse_worker
from tidemill.connect.environments import rest
from tidemill.connect.environments.folder import Folder
from tidemill.connect.environments.install import install
from tidemill.connect.environments.requirements import Pinned, parse
from tidemill.connect.worker import open_worker

pytestmark = pytest.mark.integration

Settings = Callable[..., dict[str, str]]
Open = Callable[[dict[str, str]], Awaitable[httpx.AsyncClient]]


@pytest.fixture(autouse=True)
def pip_finds(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.setenv(name, environ[name])


@pytest.fixture
async def api(worker_settings: Settings, folder: Folder) -> AsyncIterator[httpx.AsyncClient]:
    """A worker that lets `shelf` be installed."""
    settings = worker_settings({"plugin.environments": folder.path, "plugin.install.packages": "shelf"})
    async with (
        open_worker(parse_worker(settings)) as worker,
        httpx.AsyncClient(base_url=worker.url, timeout=100) as client,
    ):
        yield client


async def put_in(api: httpx.AsyncClient, wheel: Path) -> Any:
    answer = await api.post("/tidemill/plugins", json={"requirements": [line_of(wheel)]})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def create(api: httpx.AsyncClient, name: str, **more: str) -> httpx.Response:
    config = {"connector.class": "Shelf", "topic": f"shelf-{name}", "every.seconds": "0.2", **more}
    return await api.put(f"/connectors/{name}/config", json=config)


async def until(api: httpx.AsyncClient, name: str, wanted: Callable[[Any], bool]) -> Any:
    """The status of a connector that has one task, once it is as wanted."""
    status: Any = None
    try:
        async with asyncio.timeout(60):
            while True:
                status = (await api.get(f"/connectors/{name}/status")).json()
                if status.get("tasks") and wanted(status["tasks"][0]):
                    return status
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(status) from None


def runs(version: str) -> Callable[[Any], bool]:
    return lambda task: task["state"] == "RUNNING" and task.get("facts", {}).get("version") == version


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["message"]


async def test_two_versions_run_at_once_each_for_its_connector(api: httpx.AsyncClient, wheels: Path) -> None:
    assert told(await create(api, "early"))[0] == 400, "it is not there"
    first = await put_in(api, make_plugin(wheels, "1.0"))
    assert (first["name"], first["version"], first["used_by"]) == ("shelf", "1.0", [])
    await put_in(api, make_plugin(wheels, "2.0"))
    listed = (await api.get("/connector-plugins")).json()
    assert [each["version"] for each in listed if each["class"] == "Shelf"] == ["1.0", "2.0"]
    keys = (await api.get("/connector-plugins/Shelf/config?version=1.0")).json()
    assert keys[0]["documentation"] == "Topic of version 1.0"

    assert (await create(api, "old", **{"connector.plugin.version": "[1.0,2.0)"})).status_code == 201
    assert (await create(api, "new")).status_code == 201
    for name, version in (("old", "1.0"), ("new", "2.0")):
        status = await until(api, name, runs(version))
        assert status["connector"]["version"] == version
        assert status["tasks"][0]["facts"]["part"] == f"of {version}", "it has divided its work itself"
    environments = (await api.get("/tidemill/plugins")).json()["environments"]
    assert [(each["version"], each["used_by"]) for each in environments] == [("1.0", ["old"]), ("2.0", ["new"])]

    await put_in(api, make_plugin(wheels, "3.0"))
    await asyncio.sleep(0.5)
    await until(api, "new", runs("2.0"))  # what runs keeps its version
    assert (await api.post("/connectors/new/restart?includeTasks=true")).status_code == 202
    await until(api, "new", runs("3.0"))
    await until(api, "old", runs("1.0"))
    assert "shelf" not in sys.modules, "the worker has imported none of them"


async def test_configurations_are_judged_by_the_version_they_ask_for(api: httpx.AsyncClient, wheels: Path) -> None:
    for version in ("1.0", "2.0"):
        await put_in(api, make_plugin(wheels, version))
    status, message = told(await create(api, "c", **{"connector.plugin.version": "[3.0,)"}))
    assert status == 400
    assert "Version [3.0,) of Shelf is not installed: this worker has 1.0, 2.0" in message
    status, message = told(await create(api, "c", topic="refused", **{"connector.plugin.version": "1.0"}))
    assert status == 400
    assert "version 1.0 does not like it" in message
    config = {"name": "c", "connector.class": "Shelf", "topic": "t", "every.seconds": "often", "password": "secret"}
    infos = (await api.put("/connector-plugins/Shelf/config/validate", json=config)).json()
    values = {each["value"]["name"]: each["value"] for each in infos["configs"]}
    assert infos["error_count"] == 1
    assert values["every.seconds"]["errors"][0].startswith("Invalid value often for configuration every.seconds: ")
    assert values["password"]["value"] == "[hidden]"


async def test_what_is_used_is_not_removed_unless_by_force(api: httpx.AsyncClient, wheels: Path) -> None:
    for version in ("1.0", "2.0"):
        await put_in(api, make_plugin(wheels, version))
    await create(api, "old", **{"connector.plugin.version": "1.0"})
    await until(api, "old", runs("1.0"))
    assert (await api.delete("/tidemill/plugins/shelf/2.0")).status_code == 204
    status, message = told(await api.delete("/tidemill/plugins/shelf/1.0"))
    assert (status, message.partition(":")[0]) == (409, "shelf==1.0 is used by old")
    assert told(await api.delete("/tidemill/plugins/shelf/2.0"))[0] == 404
    assert (await api.delete("/tidemill/plugins/shelf/1.0?force=true")).status_code == 204
    await put_in(api, wheels / "shelf-2.0-py3-none-any.whl")
    assert (await api.post("/connectors/old/restart?includeTasks=true")).status_code == 202
    status = await until(api, "old", lambda task: task["state"] == "FAILED")
    assert "Version 1.0 of Shelf is not installed: this worker has 2.0" in status["tasks"][0]["trace"]
    assert status["tasks"][0]["failure"] == "configuration"
    assert (await api.delete("/connectors/old")).status_code == 204


async def test_what_a_deleted_connector_leaves_is_told_and_its_environment_can_be_removed(
    api: httpx.AsyncClient, wheels: Path
) -> None:
    await put_in(api, make_plugin(wheels, "1.0"))
    await create(api, "c")
    await until(api, "c", runs("1.0"))
    status, message = told(await api.delete("/tidemill/plugins/shelf/1.0"))
    assert (status, "is used by c" in message) == (409, True)
    with capture_logs() as lines:
        assert (await api.delete("/connectors/c")).status_code == 204
    assert [line["left"] for line in lines if "left" in line] == ["something of version 1.0"]
    assert (await api.delete("/tidemill/plugins/shelf/1.0")).status_code == 204, "what stays ready is let go"


async def test_what_may_not_be_installed_is_refused_with_what_to_do(
    api: httpx.AsyncClient, wheels: Path, folder: Folder
) -> None:
    wheel = make_plugin(wheels, "1.0")
    make_plugin(wheels, "1.0", "other")
    refused = {
        "shelf==1.0": (400, "shelf==1.0: without a hash: write NAME==VERSION --hash=sha256:"),
        f"shelf>=1.0 --hash={hash_of(wheel)}": (400, "not pinned to one version"),
        f"shelf @ {wheel.as_uri()} --hash={hash_of(wheel)}": (400, "an address is not taken"),
        line_of(wheels / "other-1.0-py3-none-any.whl"): (403, "plugin.install.packages does not list: other"),
        f"shelf==1.0 --hash=sha256:{'0' * 64}": (422, "DO NOT MATCH THE HASHES"),
    }
    for line, (status, why) in refused.items():
        answer = await api.post("/tidemill/plugins", json={"requirements": [line]})
        assert answer.status_code == status and why in told(answer)[1], line
    for body in ({"requirements": "shelf==1.0"}, {}, [], {"requirements": [], "more": 1}):
        assert (await api.post("/tidemill/plugins", json=body)).status_code == 400
    deep = f"shelf==1.0 ; {'(' * 5000}os_name=='x'{')' * 5000} --hash={hash_of(wheel)}"
    marked = f'shelf==1.0 ; "a" == "${{PIP_FIND_LINKS}}" --hash={hash_of(wheel)}'
    for line in (deep, marked):
        answer = await api.post("/tidemill/plugins", json={"requirements": [line]})
        assert answer.status_code == 400 and str(wheels) not in answer.text
    for kind in ("text/plain", "", "application/x-www-form-urlencoded"):
        answer = await api.post(
            "/tidemill/plugins",
            content=json.dumps({"requirements": [line_of(wheel)]}),
            headers={"content-type": kind, "origin": "http://elsewhere"},
        )
        assert answer.status_code == 415, "what any page in a browser may send unasked"
    assert told(await api.delete("/tidemill/plugins/other/1.0"))[0] == 403
    assert folder.environments() == ()


async def test_whose_name_is_allowed_removes_nothing_of_another_name(
    api: httpx.AsyncClient, wheels: Path, folder: Folder
) -> None:
    made = await asyncio.to_thread(install, folder, parse(line_of(make_plugin(wheels, "1.0", "shelf-secret"))))
    (Path(folder.path) / "shelf-x").mkdir()
    for other in (Path(made.path).name.removeprefix("shelf-"), "x"):
        answer = await api.delete(f"/tidemill/plugins/shelf/{other}?force=true")
        assert answer.status_code in (403, 404)
    assert len(folder.environments()) == 2


async def test_others_are_answered_while_long_requirements_are_read(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def read(text: str) -> tuple[Pinned, ...]:
        begun.set()
        assert may_end.wait(20)
        return parse(text)

    monkeypatch.setattr(rest, "parse", read)
    asked = asyncio.create_task(api.post("/tidemill/plugins", json={"requirements": ["shelf==1.0"]}))
    assert await asyncio.to_thread(begun.wait, 20)
    async with asyncio.timeout(10):
        assert (await api.get("/tidemill/plugins")).status_code == 200
    may_end.set()
    assert (await asked).status_code == 400


async def test_one_installation_at_a_time(api: httpx.AsyncClient, wheels: Path) -> None:
    lines = [line_of(make_plugin(wheels, version)) for version in ("1.0", "2.0")]
    answers = await asyncio.gather(
        *(api.post("/tidemill/plugins", json={"requirements": [line]}) for line in lines),
    )
    assert sorted(answer.status_code for answer in answers) == [201, 409]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "This worker has no plugin environments: set plugin.environments to a folder for them"),
        (
            {"plugin.environments": "FOLDER"},
            "installed or removed through its REST API: list the package in",
        ),
    ],
)
async def test_nothing_is_installed_through_the_api_unless_the_worker_is_set_so(
    worker_settings: Settings, wheels: Path, folder: Folder, more: dict[str, str], why: str
) -> None:
    settings = worker_settings({name: value.replace("FOLDER", folder.path) for name, value in more.items()})
    line = line_of(make_plugin(wheels, "1.0"))
    async with (
        open_worker(parse_worker(settings)) as worker,
        httpx.AsyncClient(base_url=worker.url, timeout=100) as api,
    ):
        for answer in (
            await api.post("/tidemill/plugins", json={"requirements": [line]}),
            await api.delete("/tidemill/plugins/shelf/1.0?force=true"),
        ):
            status, message = told(answer)
            assert (status, why in message) == (403, True)
        assert (await api.get("/tidemill/plugins")).json()["environments"] == []
        if more:  # who may write into the folder may install there, and the worker finds it
            await asyncio.to_thread(install, folder, parse(line))
            assert (await create(api, "c", **{"connector.plugin.version": "1.0"})).status_code == 201
            await until(api, "c", runs("1.0"))
