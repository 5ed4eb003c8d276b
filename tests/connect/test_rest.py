"""Kafka Connect's REST API over HTTP, on a whole worker with real plugins and processes

Status codes, texts and shapes were compared with those of Apache Connect 4.3.1 on the same requests.
"""

import asyncio
import contextlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tidemill import services
from tidemill.connect import rest
from tidemill.connect.entities import API_VERSION

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Worker:
    """A worker in a process of its own."""

    url: str
    log: Path

    @property
    def worker_id(self) -> str:
        return self.url.removeprefix("http://")


@pytest.fixture(scope="module")
def worker(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One worker for all tests of this file; each leaves it empty."""
    group = f"rest-{os.getpid()}-{time.time_ns()}"
    settings = {f"{role}.storage.topic": f"{group}-{role}" for role in ("config", "offset", "status")}
    settings |= {"group.id": group, "offset.flush.interval.ms": "200"}
    log = tmp_path_factory.mktemp("rest") / "worker.log"
    service = services.connect_worker("worker", bootstrap, settings=settings, log=log)
    service.command += ["--log-format", "json"]
    service.start()
    yield Worker(service.facts["url"], log)
    service.stop()


@pytest.fixture
async def api(worker: Worker) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the worker."""
    async with httpx.AsyncClient(base_url=worker.url, timeout=30) as client:
        yield client
        for name in (await client.get("/connectors")).json():
            path = f"/connectors/{quote(name, safe='')}"
            await client.put(f"{path}/stop")
            await client.delete(f"{path}/offsets")
            await client.delete(path)
            await gone(client, f"{path}/status")


@pytest.fixture
def source(tmp_path: Path, unique: Callable[[str], str]) -> dict[str, Any]:
    """The configuration of a file source."""
    file = tmp_path / "in.txt"
    file.write_text("one\ntwo\n")
    return {"connector.class": "FileStreamSource", "file": str(file), "topic": unique("topic")}


async def wait_for(api: httpx.AsyncClient, path: str, wanted: Callable[[Any], bool], timeout_s: float = 30) -> Any:
    """The body of `path` once it is as wanted."""
    content: Any = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                answer = await api.get(path)
                content = answer.json()
                if answer.status_code == 200 and wanted(content):
                    return content
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{path} stayed {content}") from None


def all_in(state: str, tasks: int = 1) -> Callable[[Any], bool]:
    """Whether a status says `state` of everything."""
    return lambda status: (
        [status["connector"]["state"]] + [each["state"] for each in status["tasks"]] == [state] * (1 + tasks)
    )


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Status and message of an error, whose body says the status again."""
    content = answer.json()
    assert set(content) == {"error_code", "message"}
    assert content["error_code"] == answer.status_code
    return answer.status_code, content["message"]


def without_facts(status: dict[str, Any]) -> dict[str, Any]:
    """A status of a connector or a task without what a task last reported, which changes all the time."""
    status.pop("facts", None)
    for task in status.get("tasks", ()):
        task.pop("facts", None)
    return status


async def test_the_life_of_a_connector(api: httpx.AsyncClient, worker: Worker, source: dict[str, Any]) -> None:
    answer = await api.post("/connectors", json={"name": " life ", "config": {**source, "tasks.max": 1}})
    config = {**source, "tasks.max": "1", "name": "life"}
    assert answer.status_code == 201
    assert answer.headers["location"] == f"{worker.url}/connectors/life"
    assert answer.json() == {"name": "life", "config": config, "tasks": [], "type": "source"}

    status = await wait_for(api, "/connectors/life/status", all_in("RUNNING"))
    where = {"state": "RUNNING", "worker_id": worker.worker_id, "version": "1.0"}
    life = {"name": "life", "connector": where, "tasks": [{"id": 0, **where}], "type": "source"}
    assert without_facts(status) == life
    assert without_facts((await api.get("/connectors/life/tasks/0/status")).json()) == {"id": 0, **where}
    assert (await api.get("/connectors/life")).json() == {
        "name": "life",
        "config": config,
        "tasks": [{"connector": "life", "task": 0}],
        "type": "source",
    }
    assert (await api.get("/connectors/life/config")).json() == config
    assert (await api.get("/connectors/life/tasks")).json() == [
        {"id": {"connector": "life", "task": 0}, "config": config}
    ]
    offset = {"offsets": [{"partition": {"filename": source["file"]}, "offset": {"position": 8}}]}
    await wait_for(api, "/connectors/life/offsets", lambda found: found == offset)
    await wait_for(api, "/connectors/life/topics", lambda found: found == {"life": {"topics": [source["topic"]]}})

    answer = await api.put("/connectors/life/pause")
    assert (answer.status_code, answer.content) == (202, b"")
    await wait_for(api, "/connectors/life/status", all_in("PAUSED"))
    assert (await api.put("/connectors/life/resume")).status_code == 202
    await wait_for(api, "/connectors/life/status", all_in("RUNNING"))

    answer = await api.put("/connectors/life/stop")
    assert (answer.status_code, answer.content) == (204, b"")
    await wait_for(api, "/connectors/life/status", all_in("STOPPED", tasks=0))
    assert (await api.get("/connectors/life/tasks")).json() == []
    assert (await api.get("/connectors/life/offsets")).json() == offset
    assert (await api.put("/connectors/life/resume")).status_code == 202
    await wait_for(api, "/connectors/life/status", all_in("RUNNING"))

    assert (await api.delete("/connectors/life")).status_code == 204
    assert (await api.get("/connectors/life")).status_code == 404
    await gone(api, "/connectors/life/status")
    await wait_for(api, "/connectors/life/topics", lambda found: found == {"life": {"topics": []}})


async def gone(api: httpx.AsyncClient, path: str) -> None:
    """Wait until a path answers 404."""
    for _ in range(600):
        if (await api.get(path)).status_code == 404:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path} is still there")


async def test_put_creates_and_replaces(api: httpx.AsyncClient, worker: Worker, source: dict[str, Any]) -> None:
    answer = await api.put("/connectors/put/config", json=source)
    assert answer.status_code == 201
    assert answer.headers["location"] == f"{worker.url}/connectors/put"
    assert answer.json()["config"] == {**source, "name": "put"}
    answer = await api.put("/connectors/put/config", json={**source, "batch.size": "7", "name": "put"})
    assert answer.status_code == 200 and "location" not in answer.headers
    assert answer.json()["config"] == {**source, "batch.size": "7", "name": "put"}
    await wait_for(
        api,
        "/connectors/put/tasks",
        lambda tasks: [task["config"].get("batch.size") for task in tasks] == ["7"],
    )
    answer = await api.patch("/connectors/put/config", json={"batch.size": None, "tasks.max": 2})
    assert answer.status_code == 200
    assert answer.json()["config"] == {**source, "name": "put", "tasks.max": "2"}


async def test_scalars_become_the_text_they_were_written_as(api: httpx.AsyncClient, source: dict[str, Any]) -> None:
    extra = '"a":1,"b":true,"c":1.50,"d":1e3,"e":-0,"f":12345678901234567890'
    body = httpx.Response(200, json=source).text[:-1] + "," + extra + "}"
    answer = await api.put("/connectors/scalars/config", content=body)
    config = answer.json()["config"]
    assert [config[key] for key in "abcdef"] == ["1", "true", "1.50", "1e3", "-0", "12345678901234567890"]


@pytest.mark.parametrize("state", ["stopped", "PAUSED", "Running"])
async def test_an_initial_state(api: httpx.AsyncClient, source: dict[str, Any], state: str) -> None:
    answer = await api.post("/connectors", json={"name": "first", "config": source, "initial_state": state})
    assert answer.status_code == 201
    tasks = 0 if state == "stopped" else 1
    await wait_for(api, "/connectors/first/status", all_in(state.upper(), tasks))


@pytest.mark.parametrize("name", ["a/b c%", "päiväkirja", "x+y?z=1&#", "a b"])
async def test_names_may_hold_anything(api: httpx.AsyncClient, source: dict[str, Any], name: str) -> None:
    answer = await api.post("/connectors", json={"name": name, "config": source})
    assert answer.status_code == 201
    location = answer.headers["location"]
    assert (await api.get(location)).json()["name"] == name
    await wait_for(api, f"{location}/status", all_in("RUNNING"))
    assert (await api.get("/connectors")).json() == [name]
    assert (await api.delete(location)).status_code == 204


async def test_lists_and_expansions(api: httpx.AsyncClient, source: dict[str, Any]) -> None:
    assert (await api.get("/connectors")).json() == []
    await api.put("/connectors/c/config", json=source)
    await wait_for(api, "/connectors/c/status", all_in("RUNNING"))
    assert (await api.get("/connectors/")).json() == ["c"]
    both = (await api.get("/connectors?expand=info&expand=status")).json()
    without_facts(both["c"]["status"])
    status = without_facts((await api.get("/connectors/c/status")).json())
    assert both == {"c": {"info": (await api.get("/connectors/c")).json(), "status": status}}
    assert (await api.get("/connectors?expand=nothing")).json() == {"c": {}}


async def test_restarts(api: httpx.AsyncClient, source: dict[str, Any]) -> None:
    await api.put("/connectors/c/config", json=source)
    running = await wait_for(api, "/connectors/c/status", all_in("RUNNING"))
    answer = await api.post("/connectors/c/restart")
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await api.post("/connectors/c/restart?includeTasks=maybe")).status_code == 204
    answer = await api.post("/connectors/c/restart?onlyFailed=true&includeTasks=TRUE")
    assert answer.status_code == 202
    told = answer.json()
    for each in (*told["tasks"], *running["tasks"]):
        each.pop("facts", None)  # there once the task has reported
    assert told == running
    answer = await api.post("/connectors/c/restart?includeTasks=true")
    assert answer.status_code == 202
    assert all_in("RESTARTING")(answer.json())
    await wait_for(api, "/connectors/c/status", all_in("RUNNING"))
    answer = await api.post("/connectors/c/tasks/0/restart")
    assert (answer.status_code, answer.content) == (204, b"")
    await wait_for(api, "/connectors/c/status", all_in("RUNNING"))


NOT_THERE = [
    ("GET", "", "Connector no not found"),
    ("GET", "/config", "Connector no not found"),
    ("GET", "/status", "No status found for connector no"),
    ("GET", "/tasks", "Connector no not found"),
    ("GET", "/tasks/0/status", "No status found for task no-0"),
    ("GET", "/offsets", "Connector no not found"),
    ("DELETE", "", "Connector no not found"),
    ("DELETE", "/offsets", "Connector no not found"),
    ("PUT", "/pause", "Unknown connector no"),
    ("PUT", "/resume", "Unknown connector no"),
    ("PUT", "/stop", "Unknown connector no"),
    ("POST", "/restart", "Unknown connector: no"),
    ("POST", "/restart?includeTasks=true", "Unknown connector: no"),
    ("POST", "/tasks/0/restart", "Unknown connector: no"),
]


async def test_what_does_not_exist(api: httpx.AsyncClient) -> None:
    for method, path, message in NOT_THERE:
        assert refusal(await api.request(method, f"/connectors/no{path}")) == (404, message), path
    assert refusal(await api.patch("/connectors/no/config", json={"a": "b"})) == (404, "Connector no not found")
    for method, path in (
        ("GET", "/nowhere"),
        ("GET", "/connectors/no/tasks-config"),
        ("GET", "/connectors/no/tasks/x/status"),
        ("GET", "/connectors/no/tasks/٣/status"),
        ("POST", "/connectors/no/tasks/-1/restart"),
    ):
        assert refusal(await api.request(method, path)) == (404, "HTTP 404 Not Found"), path
    for method, path in (("DELETE", "/connectors"), ("POST", "/"), ("GET", "/connectors/no/pause")):
        assert refusal(await api.request(method, path)) == (405, "HTTP 405 Method Not Allowed"), path


BAD_BODIES = [
    ("POST", "/connectors", b"", "The body is not JSON"),
    ("POST", "/connectors", b'{"name":', "The body is not JSON"),
    ("POST", "/connectors", b"\xff", "The body is not JSON"),
    ("POST", "/connectors", b"[" * 100_000, "The body is not JSON"),
    ("POST", "/connectors", b"[]", "The body must be a JSON object"),
    ("POST", "/connectors", b'{"name":"x"}', 'The body has no "config"'),
    ("POST", "/connectors", b'{"name":"x","config":[]}', '"config" must be a JSON object'),
    ("POST", "/connectors", b'{"name":"x","config":{"a":{}}}', "The value of setting 'a'"),
    ("POST", "/connectors", b'{"name":"x","config":{},"more":1}', 'Unrecognized field "more"'),
    ("POST", "/connectors", b'{"name":"x","config":{},"initial_state":"foo"}', "initial_state must be one of"),
    ("POST", "/connectors", b'{"name":"x","config":{}}', "Connector config {name=x} contains no connector type"),
    ("POST", "/connectors", b'{"name":"x","config":{"name":"y"}}', "(y) doesn't match connector name in the URL (x)"),
    ("PUT", "/connectors/x/config", b"7", "The body must be a JSON object"),
    ("PUT", "/connectors/x/config", b'{"name":"y"}', "(y) doesn't match connector name in the URL (x)"),
    (
        "PUT",
        "/connectors/x/config",
        b'{"connector.class":"Nope"}',
        "which name matches Nope, available connectors are:",
    ),
    ("PATCH", "/connectors/x/offsets", b"{", "The body is not JSON"),
    ("PATCH", "/connectors/x/offsets", b"{}", "Partitions / offsets need to be provided"),
    ("PATCH", "/connectors/x/offsets", b'{"offsets":[]}', "Partitions / offsets need to be provided"),
    ("PATCH", "/connectors/x/offsets", b'{"offsets":[{"offset":{}}]}', "offsets.0.partition"),
    ("PUT", "/admin/loggers/x", b"{}", "Desired 'level' parameter was not specified in request."),
    (
        "PUT",
        "/connector-plugins/FileStreamSink/config/validate",
        b"{}",
        "Connector config {} contains no connector type",
    ),
    (
        "PUT",
        "/connector-plugins/FileStreamSink/config/validate",
        b'{"connector.class":"FileStreamSource"}',
        "Included connector type FileStreamSource does not match request type FileStreamSink",
    ),
]


async def test_bodies_that_make_no_sense(api: httpx.AsyncClient) -> None:
    for method, path, content, message in BAD_BODIES:
        status, text = refusal(await api.request(method, path, content=content))
        assert status == 400 and message in text, (path, content[:60], text)
    for method, path in (
        ("POST", "/connectors"),
        ("PUT", "/connectors/x/config"),
        ("PATCH", "/connectors/x/offsets"),
        ("PUT", "/admin/loggers/x"),
    ):
        status, text = refusal(await api.request(method, path, content=b" " * (5 << 20)))
        assert status == 413 and "at most" in text
    assert (await api.get("/connectors")).json() == []


@pytest.mark.parametrize("path", ["POST /connectors", "PATCH /connectors/x/offsets"])
async def test_a_body_without_end_is_not_read_to_its_end(worker: Worker, path: str) -> None:
    host, _, port = worker.worker_id.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        head = f"{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        answer = asyncio.create_task(reader.readline())
        sent, part = 0, b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        while not answer.done():
            assert sent < 100 << 20, "it reads on for ever"
            with contextlib.suppress(ConnectionError):
                writer.write(part)
                await asyncio.wait_for(writer.drain(), 20)
            sent += len(part)
            await asyncio.sleep(0)
        assert b" 413 " in await answer
    finally:
        writer.close()


async def test_text_that_no_bytes_spell_is_the_clients_mistake(api: httpx.AsyncClient) -> None:
    for path, content in (
        ("/connectors/x/config", rb'{"connector.class":"FileStreamSource","file":"\ud800"}'),
        (
            "/connector-plugins/FileStreamSource/config/validate",
            rb'{"connector.class":"FileStreamSource","a":"\udfff"}',
        ),
    ):
        status, text = refusal(await api.put(path, content=content))
        assert status == 400 and "surrogates" in text


async def test_a_configuration_too_large_for_its_record_is_refused(
    api: httpx.AsyncClient, source: dict[str, Any]
) -> None:
    status, text = refusal(await api.put("/connectors/large/config", json={**source, "pad": "x" * 1_500_000}))
    assert status == 413 and "does not fit into a record" in text
    assert (await api.get("/connectors")).json() == []
    assert (await api.get("/health")).json()["status"] == "healthy"


async def test_settings_in_vain_are_told_where_people_look(api: httpx.AsyncClient, source: dict[str, Any]) -> None:
    warning = "'batch.szie' is unknown and has no effect: did you mean 'batch.size'?"
    answer = await api.put("/connectors/c/config", json={**source, "batch.szie": "7"})
    assert answer.status_code == 201 and answer.json()["warnings"] == [warning]
    status = await wait_for(api, "/connectors/c/status", all_in("RUNNING"))
    assert status["warnings"] == [warning]
    answer = await api.patch("/connectors/c/config", json={"batch.szie": None})
    assert "warnings" not in answer.json()
    assert "warnings" not in (await api.get("/connectors/c/status")).json()


async def test_references_to_secrets_are_refused(api: httpx.AsyncClient, source: dict[str, Any]) -> None:
    config = {**source, "file": "${file:/run/secrets:pw}"}
    status, text = refusal(await api.put("/connectors/c/config", json=config))
    assert status == 400 and "'file' refers to the config provider 'file'" in text


async def test_a_configuration_with_mistakes_lists_them(api: httpx.AsyncClient) -> None:
    config = {"connector.class": "FileStreamSource", "tasks.max": "abc", "batch.size": None, "file": "x"}
    assert refusal(await api.put("/connectors/c/config", json=config)) == (
        400,
        "Connector configuration is invalid and contains the following 3 error(s):\n"
        "Invalid value abc for configuration tasks.max: Not a number of type INT\n"
        'Missing required configuration "topic" which has no default value.\n'
        "Null value can not be supplied as the configuration value.\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`",
    )
    status, text = refusal(await api.post("/connectors", json={"config": {**config, "tasks.max": 1}}))
    assert status == 400 and "Invalid value  for configuration name: String may not be empty" in text


async def test_a_name_is_taken_once(api: httpx.AsyncClient, source: dict[str, Any]) -> None:
    first, second = await asyncio.gather(
        *(api.post("/connectors", json={"name": "same", "config": source}) for _ in range(2))
    )
    assert sorted([first.status_code, second.status_code]) == [201, 409]
    loser = first if first.status_code == 409 else second
    assert refusal(loser) == (409, "Connector same already exists")


async def test_offsets_of_a_source_are_moved_and_reset_while_it_is_stopped(
    api: httpx.AsyncClient, source: dict[str, Any]
) -> None:
    await api.put("/connectors/c/config", json=source)
    offset = {"partition": {"filename": source["file"]}, "offset": {"position": 8}}
    await wait_for(api, "/connectors/c/offsets", lambda found: found == {"offsets": [offset]})
    moved = {"offsets": [{**offset, "offset": {"position": 4}}]}
    for answer in (await api.patch("/connectors/c/offsets", json=moved), await api.delete("/connectors/c/offsets")):
        status, text = refusal(answer)
        assert status == 400
        assert text.startswith("Connectors must be in the STOPPED state before their offsets can be modified.")
        assert "'/connectors/c/stop'" in text
    await api.put("/connectors/c/stop")
    answer = await api.patch("/connectors/c/offsets", json=moved)
    assert answer.json() == {"message": "The offsets for this connector have been altered successfully"}
    assert (await api.get("/connectors/c/offsets")).json() == moved
    status, text = refusal(
        await api.patch("/connectors/c/offsets", json={"offsets": [{"partition": {"a": {}}, "offset": None}]})
    )
    assert status == 400 and "flat maps" in text
    await api.put("/connectors/c/resume")
    await wait_for(api, "/connectors/c/offsets", lambda found: found == {"offsets": [offset]})  # read on from 4
    await api.put("/connectors/c/stop")
    answer = await api.delete("/connectors/c/offsets")
    assert answer.json() == {"message": "The offsets for this connector have been reset successfully"}
    assert (await api.get("/connectors/c/offsets")).json() == {"offsets": []}


async def test_offsets_of_a_sink_are_its_groups(
    api: httpx.AsyncClient, source: dict[str, Any], tmp_path: Path, unique: Callable[[str], str]
) -> None:
    into = unique("into")
    await api.put("/connectors/from/config", json=source)
    topic, target = source["topic"], tmp_path / "out.txt"
    sink = {"connector.class": "FileStreamSink", "topics": topic, "file": str(target)}
    await api.put(f"/connectors/{into}/config", json=sink)
    partition = {"kafka_topic": topic, "kafka_partition": 0}

    def at(offset: Any) -> dict[str, Any]:
        return {"offsets": [{"partition": partition, "offset": offset}]}

    await wait_for(api, f"/connectors/{into}/offsets", lambda found: found == at({"kafka_offset": 2}))
    assert target.read_text().splitlines() == ["one", "two"]
    await api.put(f"/connectors/{into}/stop")
    status, text = refusal(await api.patch(f"/connectors/{into}/offsets", json=at({"position": 1})))
    assert status == 400 and "contain the key 'kafka_offset'" in text
    await wait_for(api, f"/connectors/{into}/status", all_in("STOPPED", tasks=0))
    moved = {"offsets": [{"partition": {**partition, "kafka_partition": "0"}, "offset": {"kafka_offset": "1"}}]}
    answer = await api.patch(f"/connectors/{into}/offsets", json=moved)
    assert answer.json() == {"message": "The offsets for this connector have been altered successfully"}
    assert (await api.get(f"/connectors/{into}/offsets")).json() == at({"kafka_offset": 1})
    await api.put(f"/connectors/{into}/resume")
    await wait_for(api, f"/connectors/{into}/offsets", lambda found: found == at({"kafka_offset": 2}))
    assert target.read_text().splitlines() == ["one", "two", "two"]
    await api.put(f"/connectors/{into}/stop")
    assert (await api.delete(f"/connectors/{into}/offsets")).status_code == 200
    assert (await api.get(f"/connectors/{into}/offsets")).json() == {"offsets": []}


async def test_plugins(api: httpx.AsyncClient) -> None:
    plugins = (await api.get("/connector-plugins/")).json()
    assert {"class": "FileStreamSource", "type": "source", "version": "1.0"} in plugins
    assert {plugin["type"] for plugin in plugins} == {"source", "sink"}
    everything = (await api.get("/connector-plugins?connectorsOnly=false")).json()
    assert {"class": "org.apache.kafka.connect.json.JsonConverter", "type": "converter"} in everything
    router = "org.apache.kafka.connect.transforms.RegexRouter"
    assert {"class": router, "type": "transformation", "version": "1.0"} in everything
    assert {plugin["type"] for plugin in everything} >= {"transformation", "predicate"}
    for name in (router, "RegexRouter"):
        keys = (await api.get(f"/connector-plugins/{name}/config")).json()
        assert [(key["name"], key["required"]) for key in keys] == [("regex", True), ("replacement", True)]
    keys = (await api.get("/connector-plugins/FileStreamSource/config")).json()
    assert [key["name"] for key in keys] == ["file", "topic", "batch.size"]
    assert set(keys[0]) == {
        "name",
        "type",
        "required",
        "default_value",
        "importance",
        "documentation",
        "group",
        "order_in_group",
        "width",
        "display_name",
        "dependents",
    }
    assert refusal(await api.get("/connector-plugins/Nope/config")) == (404, "Unknown plugin Nope.")
    assert (await api.get("/connector-plugins/FileStreamSource/config?version=[0,)")).json() == keys
    status, message = refusal(await api.get("/connector-plugins/FileStreamSource/config?version=99"))
    assert (status, message.partition(":")[0]) == (404, "Version 99 of FileStreamSource is not installed")


@pytest.mark.parametrize(
    "path", ["FileStreamSource", "FileStreamSourceConnector", "org.apache.kafka.connect.file.FileStreamSourceConnector"]
)
async def test_validation_answers_200_whatever_it_finds(api: httpx.AsyncClient, path: str) -> None:
    config = {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "tasks.max": 0}
    answer = await api.put(f"/connector-plugins/{path}/config/validate", json=config)
    assert answer.status_code == 200
    infos = answer.json()
    assert infos["name"] == config["connector.class"]
    assert infos["error_count"] == sum(len(each["value"]["errors"]) for each in infos["configs"]) == 4
    (tasks_max,) = [each for each in infos["configs"] if each["value"]["name"] == "tasks.max"]
    assert tasks_max["value"] == {
        "name": "tasks.max",
        "value": "0",
        "recommended_values": [],
        "errors": ["Invalid value 0 for configuration tasks.max: Value must be at least 1"],
        "visible": True,
    }
    assert tasks_max["definition"]["order_in_group"] == 4


async def test_the_worker_about_itself(api: httpx.AsyncClient, worker: Worker) -> None:
    root = (await api.get("/")).json()
    assert set(root) == {"version", "commit", "kafka_cluster_id"}
    assert root["version"] == API_VERSION and root["commit"].startswith("tidemill-")
    assert root["kafka_cluster_id"] != ""
    answer = await api.get("/health")
    assert answer.status_code == 200 and answer.json()["status"] == "healthy"
    assert (await api.get("/health/live")).json() == {"status": "live"}
    assert (await api.get("/health/ready")).json() == {"status": "ready"}
    answer = await api.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert re.search(r"^kafka_connect_worker_connector_count 0.0$", answer.text, re.MULTILINE)
    assert (await api.get("/docs")).status_code == 200


@pytest.mark.parametrize(("status", "word"), [("starting", "reading"), ("unhealthy", "cannot write")])
async def test_a_worker_that_is_not_ready_says_why(status: str, word: str) -> None:
    request: Any = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(health=lambda: status)))
    answer = await rest.ready(request)
    told = json.loads(bytes(answer.body))
    assert (answer.status_code, told["status"]) == (503, "not ready")
    (reason,) = told["reasons"]
    assert reason["what"] == "worker" and word in reason["why"]


async def test_log_levels(api: httpx.AsyncClient, worker: Worker) -> None:
    name = "tidemill.test_rest.levels"
    assert refusal(await api.get(f"/admin/loggers/{name}")) == (404, f"Logger {name} not found.")
    assert (await api.put(f"/admin/loggers/{name}", json={"level": "debug"})).json() == [name]
    level = (await api.get(f"/admin/loggers/{name}")).json()
    assert level["level"] == "DEBUG" and level["last_modified"] > 0
    assert (await api.get("/admin/loggers")).json()[name] == level
    assert refusal(await api.put(f"/admin/loggers/{name}", json={"level": "LOUD"})) == (
        404,
        "invalid log level 'LOUD'.",
    )
    answer = await api.put(f"/admin/loggers/{name}?scope=cluster", json={"level": "ERROR"})
    assert (answer.status_code, answer.content) == (204, b"")
    await wait_for(api, f"/admin/loggers/{name}", lambda found: found["level"] == "ERROR")
    assert (await api.put(f"/admin/loggers/{name}?scope=galaxy", json={"level": "INFO"})).json() == [name]


def is_json(line: str) -> bool:
    """Whether a line is the worker's own; task processes write to the same file."""
    return line.startswith("{")


async def test_every_act_is_one_line_of_the_log(api: httpx.AsyncClient, worker: Worker, source: dict[str, Any]) -> None:
    skipped = len(worker.log.read_text().splitlines())
    name = "act s"
    path = f"/connectors/{quote(name)}"
    await api.post("/connectors", json={"name": name, "config": source})
    await wait_for(api, f"{path}/status", all_in("RUNNING"))
    await api.put(f"{path}/config", json=source)
    await api.patch(f"{path}/config", json={"batch.size": "7"})
    await api.put(f"{path}/pause")
    await api.put(f"{path}/resume")
    await wait_for(api, f"{path}/status", all_in("RUNNING"))
    await api.post(f"{path}/restart?includeTasks=true")
    await api.post(f"{path}/tasks/0/restart")
    await api.put(f"{path}/stop")
    partition = {"filename": source["file"]}
    await api.patch(f"{path}/offsets", json={"offsets": [{"partition": partition, "offset": {"position": 4}}]})
    await api.delete(f"{path}/offsets")
    await api.delete(path)
    await api.delete(path)  # not there any more: nothing done, nothing to tell
    acts = [
        line["event"]
        for line in map(json.loads, filter(is_json, worker.log.read_text().splitlines()[skipped:]))
        if line.get("connector") == name or line.get("task") == f"{name}-0"
    ]
    assert [act for act in acts if not act.startswith("task ") or act == "task restarted"] == [
        "connector created",
        "connector changed",
        "connector changed",
        "connector paused",
        "connector resumed",
        "connector restarted",
        "task restarted",
        "connector stopped",
        "offsets altered",
        "offsets reset",
        "connector deleted",
    ]


async def test_the_record_of_topics_can_be_emptied(api: httpx.AsyncClient, source: dict[str, Any]) -> None:
    await api.put("/connectors/c/config", json=source)
    await wait_for(api, "/connectors/c/topics", lambda found: found == {"c": {"topics": [source["topic"]]}})
    await api.put("/connectors/c/stop")
    await wait_for(api, "/connectors/c/status", all_in("STOPPED", tasks=0))
    assert (await api.put("/connectors/c/topics/reset")).status_code == 202
    await wait_for(api, "/connectors/c/topics", lambda found: found == {"c": {"topics": []}})


async def test_what_cannot_be_kept_for_a_task_that_shares_its_process_is_refused(
    api: httpx.AsyncClient, source: dict[str, Any]
) -> None:
    config = {**source, "name": "c", "tidemill.task.isolation": "shared", "task.memory.max.bytes": "100000000"}
    status, text = refusal(await api.put("/connectors/c/config", json=config))
    assert status == 400
    assert (
        "task.memory.max.bytes can only be kept for a whole process, and with tidemill.task.isolation=shared several "
        "tasks are in one. Remove it, or set tidemill.task.isolation=process."
    ) in text
    path = "/connector-plugins/FileStreamSource/config/validate"
    judged = (await api.put(path, json={**config, "tidemill.task.isolation": "thread"})).json()
    errors = {each["value"]["name"]: each["value"]["errors"] for each in judged["configs"] if each["value"]["errors"]}
    assert errors == {
        "tidemill.task.isolation": [
            "Invalid value thread for configuration tidemill.task.isolation: String must be one of: process, shared"
        ]
    }
