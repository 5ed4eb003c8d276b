"""Calls that workers make of one another, as Apache's worker takes them (InternalClusterResource.java, Kafka 4.x)"""

from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import httpx
import orjson
import pytest

from tidemill.connect.entities import ServerInfo
from tidemill.connect.internal_rest import internal
from tidemill.connect.loggers import LoggerLevels
from tidemill.connect.operations import Operations, RestError
from tidemill.connect.rest import BODY_BYTES_MAX, Parts, create_app
from tidemill.connect.signing import MADE_FROM, NO_KEY_YET, UNSIGNED, WRONG, signed
from tidemill.core.runtime.clock import ManualClock

KEY = b"k" * 32


class Api:
    """What the calls lead to."""

    def __init__(self) -> None:
        self.submitted: list[tuple[str, tuple[Mapping[str, str], ...], int | None]] = []
        self.key: bytes | None = KEY

    async def submit_tasks(self, name: str, tasks: tuple[Mapping[str, str], ...], made_from: int | None) -> None:
        self.submitted.append((name, tasks, made_from))

    def info(self, name: str) -> SimpleNamespace:
        if name == "none":
            raise RestError(404, "Connector none not found")
        return SimpleNamespace(type=name)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def client(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    parts = Parts(
        operations=cast("Operations", api),
        server_info=ServerInfo(version="1", commit="1", kafka_cluster_id="k"),
        loggers=LoggerLevels(ManualClock()),
        health=lambda: "healthy",
        metrics=str,
        session_key=lambda: api.key,
    )
    transport = httpx.ASGITransport(create_app(parts, [internal]))
    async with httpx.AsyncClient(transport=transport, base_url="http://worker") as client:
        yield client


def refusal(answer: httpx.Response) -> tuple[int, str]:
    content = answer.json()
    assert content["error_code"] == answer.status_code
    return answer.status_code, content["message"]


async def test_signed_tasks_are_taken(client: httpx.AsyncClient, api: Api) -> None:
    tasks = ({"a": "1"}, {"a": "é"})
    body = orjson.dumps(tasks)
    headers = signed(KEY, "HmacSHA256", body) | {MADE_FROM: "7"}
    answer = await client.post("/connectors/a%2Fb%20c/tasks?forward=true", content=body, headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")
    assert api.submitted == [("a/b c", tasks, 7)]


async def test_what_java_sends_is_taken(client: httpx.AsyncClient, api: Api) -> None:
    """Jackson's bytes, without the header of ours; null stands for a setting that is not there."""
    body = b'[{"tasks.max":"1","x":null}]'
    answer = await client.post("/connectors/c/tasks", content=body, headers=signed(KEY, "HmacSHA256", body))
    assert answer.status_code == 204
    assert api.submitted == [("c", ({"tasks.max": "1"},), None)]


@pytest.mark.parametrize(("method", "path"), [("POST", "/connectors/c/tasks"), ("PUT", "/connectors/source/fence")])
async def test_whoever_cannot_sign_changes_nothing(client: httpx.AsyncClient, api: Api, method: str, path: str) -> None:
    body = b"not even json"
    assert refusal(await client.request(method, path, content=body)) == (400, UNSIGNED)
    wrong = signed(b"guess", "HmacSHA256", body)
    assert refusal(await client.request(method, path, content=body, headers=wrong)) == (403, WRONG)
    sha1 = signed(KEY, "HmacSHA1", body)
    assert refusal(await client.request(method, path, content=body, headers=sha1))[0] == 400
    api.key = None
    assert refusal(await client.request(method, path, content=body, headers=wrong)) == (503, NO_KEY_YET)
    assert api.submitted == []


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b'["a"]', b'[{"a":1}]', b'[{"a":{}}]', b"[" * 100_000])
async def test_signed_rubbish_is_a_bad_request(client: httpx.AsyncClient, api: Api, body: bytes) -> None:
    answer = await client.post("/connectors/c/tasks", content=body, headers=signed(KEY, "HmacSHA256", body))
    assert refusal(answer)[0] == 400 and api.submitted == []


@pytest.mark.parametrize("made_from", ["-1", "x", "9" * 30, ""])
async def test_a_version_that_is_none_is_not_looked_at(client: httpx.AsyncClient, api: Api, made_from: str) -> None:
    headers = signed(KEY, "HmacSHA256", b"[]") | {MADE_FROM: made_from}
    assert (await client.post("/connectors/c/tasks", content=b"[]", headers=headers)).status_code == 204
    assert api.submitted == [("c", (), None)]


async def test_a_body_that_is_too_large_is_refused_unread(client: httpx.AsyncClient, api: Api) -> None:
    answer = await client.post("/connectors/c/tasks", content=b"x" * (BODY_BYTES_MAX + 1))
    assert refusal(answer)[0] == 413 and api.submitted == []


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("none", 404, "Connector none not found"),
        ("sink", 400, "Connector sink is not a source connector"),
        ("source", 501, "nothing to fence"),
    ],
)
async def test_nothing_is_fenced(client: httpx.AsyncClient, name: str, status: int, message: str) -> None:
    answer = await client.put(f"/connectors/{name}/fence", headers=signed(KEY, "HmacSHA256", b""))
    code, text = refusal(answer)
    assert code == status and message in text


async def test_the_calls_are_not_advertised(client: httpx.AsyncClient) -> None:
    paths: dict[str, Any] = (await client.get("/openapi.json")).json()["paths"]
    assert "/connectors/{connector}/fence" not in paths
    assert "post" not in paths["/connectors/{connector}/tasks"]
