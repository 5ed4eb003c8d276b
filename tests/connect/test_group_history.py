"""The history of a connector from all workers of its group: scripted workers, the API around them"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import httpx
import orjson
import pytest

from tidemill.connect.entities import (
    ConnectorHistory,
    HistoryOfWorker,
    InstanceHistory,
    RunInfo,
    ServerInfo,
    body,
)
from tidemill.connect.group_history import GroupHistory, merged, routes
from tidemill.connect.herder.history import RUNS_MAX
from tidemill.connect.loggers import LoggerLevels
from tidemill.connect.operations import Operations, RestError
from tidemill.connect.peer_client import PeerAnswer, PeerClient, Silent
from tidemill.connect.rest import Parts, create_app
from tidemill.core.runtime.clock import ManualClock

OWN, OTHER, THIRD = "http://a:8083", "http://b:8083", "http://c:8083"


def run(worker_id: str, second: int, *, generation: int = 1, **more: Any) -> RunInfo:
    return RunInfo(worker_id=worker_id, generation=generation, started=f"2026-03-01T12:00:{second:02}.000Z", **more)


def told(url: str, *runs: RunInfo, task: int = 0, connector: tuple[RunInfo, ...] = ()) -> ConnectorHistory:
    tasks = (InstanceHistory(id=task, runs=runs),) if runs else ()
    known = HistoryOfWorker(url=url, since="2026-03-01T11:00:00.000Z")
    return ConnectorHistory(name="c/1", workers=(known,), connector=InstanceHistory(runs=connector), tasks=tasks)


class Peers:
    """The other workers, by what they answer."""

    def __init__(self) -> None:
        self.answers: dict[str, ConnectorHistory | tuple[int, bytes] | Exception] = {}
        self.asked: list[tuple[str, str, str, dict[str, str]]] = []

    async def ask(
        self, url: str, method: str, target: str, headers: Mapping[str, str], content: bytes, *, timeout_s: float
    ) -> PeerAnswer:
        self.asked.append((url, method, target, dict(headers)))
        answer = self.answers[url]
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ConnectorHistory):
            answer = (200, orjson.dumps(body(answer)))
        return PeerAnswer(status=answer[0], headers=(), body=answer[1])


class Api:
    """This worker."""

    def __init__(self) -> None:
        self.own = told(OWN)

    def info(self, name: str) -> None:
        if name != "c/1":
            raise RestError(404, f"Connector {name} not found")

    def history(self, name: str) -> ConnectorHistory:
        return self.own.model_copy(update={"name": name})


@pytest.fixture
def peers() -> Peers:
    return Peers()


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def client(api: Api, peers: Peers) -> AsyncIterator[httpx.AsyncClient]:
    parts = Parts(
        operations=cast("Operations", api),
        server_info=ServerInfo(version="1", commit="1", kafka_cluster_id="k"),
        loggers=LoggerLevels(ManualClock()),
        health=lambda: "healthy",
        metrics=str,
    )
    group = GroupHistory(cast("PeerClient", peers), lambda: [f"{OWN}/", *peers.answers])
    transport = httpx.ASGITransport(create_app(parts, [routes(group)]))
    async with httpx.AsyncClient(transport=transport, base_url="http://worker") as client:
        yield client


async def test_what_moved_has_its_runs_from_every_worker_in_order(
    client: httpx.AsyncClient, api: Api, peers: Peers
) -> None:
    first = run("a:8083", 1, ended="2026-03-01T12:00:02.000Z", ran_ms=1_000, reason="it moved")
    split = run("b:8083", 1)
    again = run("b:8083", 3, generation=2, ended="2026-03-01T12:00:04.000Z", failure="killed", reason="SIGKILL")
    api.own = told(OWN, first)
    peers.answers = {OTHER: told(OTHER, again, connector=(split,)), THIRD: told(THIRD, run("c:8083", 5), task=3)}
    answer = await client.get("/tidemill/connectors/c%2F1/history", headers={"authorization": "Basic x"})
    assert answer.status_code == 200
    found = answer.json()
    since = "2026-03-01T11:00:00.000Z"
    assert found["workers"] == [{"url": url, "since": since} for url in (OWN, OTHER, THIRD)]
    assert found["connector"] == {"runs": [body(split)]}
    assert found["tasks"] == [
        {"id": 0, "runs": [body(first), body(again)]},
        {"id": 3, "runs": [body(run("c:8083", 5))]},
    ]
    target = "/tidemill/connectors/c%2F1/history?forward=false"
    assert [each[:3] for each in peers.asked] == [(OTHER, "GET", target), (THIRD, "GET", target)]
    assert all(headers["authorization"] == "Basic x" for *_, headers in peers.asked)


async def test_who_is_not_heard_is_named(client: httpx.AsyncClient, api: Api, peers: Peers) -> None:
    api.own = told(OWN, run("a:8083", 1))
    peers.answers = {OTHER: Silent("no sign of life within 2 s"), THIRD: (404, b"{}"), "http://d:1": (200, b"[]")}
    peers.answers["http://e:1"] = (500, b"{}")
    found = (await client.get("/tidemill/connectors/c%2F1/history")).json()
    assert len(found["tasks"][0]["runs"]) == 1
    problems = {each["url"]: each.get("problem", "") for each in found["workers"]}
    assert problems[OWN] == "" and problems[OTHER] == "no sign of life within 2 s"
    assert problems[THIRD] == "it keeps no history, as Apache's workers do not (status 404)"
    assert problems["http://e:1"] == "it answers with status 500"
    assert "not understood" in problems["http://d:1"]


async def test_a_worker_that_is_asked_by_another_asks_nobody(client: httpx.AsyncClient, api: Api, peers: Peers) -> None:
    """Nor does it say that there is no such connector: it may not have read of it yet."""
    peers.answers = {OTHER: told(OTHER)}
    answer = await client.get("/tidemill/connectors/new/history?forward=false")
    assert (answer.status_code, answer.json()) == (200, body(api.history("new")))
    assert not peers.asked


async def test_of_a_connector_that_does_not_exist_nothing_is_told(client: httpx.AsyncClient, peers: Peers) -> None:
    answer = await client.get("/tidemill/connectors/none/history")
    assert (answer.status_code, answer.json()["message"]) == (404, "Connector none not found")
    assert not peers.asked


async def test_the_description_of_the_api_has_its_answer(client: httpx.AsyncClient) -> None:
    described: Any = (await client.get("/openapi.json")).json()
    answers = described["paths"]["/tidemill/connectors/{connector}/history"]["get"]["responses"]
    assert answers["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/ConnectorHistory")
    assert "404" in answers
    assert {"ConnectorHistory", "InstanceHistory", "RunInfo", "HistoryOfWorker"} <= set(
        described["components"]["schemas"]
    )


def test_no_more_than_the_last_runs_are_told() -> None:
    here = told(OWN, *(run("a:8083", second) for second in range(0, 40, 2)))
    there = told(OTHER, *(run("b:8083", second) for second in range(1, 41, 2)))
    (task,) = merged([here, there]).tasks
    assert [each.started[-7:-5] for each in task.runs] == [f"{second:02}" for second in range(40 - RUNS_MAX, 40)]


def test_workers_whose_clocks_differ_are_ordered_by_generation() -> None:
    before = told(OWN, run("a:8083", 30, generation=1))
    after = told(OTHER, run("b:8083", 10, generation=2))
    (task,) = merged([after, before]).tasks
    assert [each.worker_id for each in task.runs] == ["a:8083", "b:8083"]
