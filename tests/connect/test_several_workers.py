"""The REST API on several workers of one group: any of them is asked for anything"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidemill.connect.config import parse_worker
from tidemill.connect.group.seat import GroupRefused
from tidemill.connect.signing import NO_KEY_YET, UNSIGNED, WRONG, signed
from tidemill.connect.worker import StartRefused, Worker, open_worker

pytestmark = pytest.mark.integration

Settings = Callable[..., dict[str, str]]

WORKERS = 3


class Group:
    """Workers of one group, and clients of each."""

    def __init__(
        self, workers: list[Worker], clients: list[httpx.AsyncClient], stops: list[Callable[[], Awaitable[None]]]
    ) -> None:
        self.workers = workers
        self.clients = clients
        self.stops = stops

    @property
    def leaders(self) -> list[int]:
        """Who is in office."""
        return [number for number, each in enumerate(self.workers) if each.herder.whereabouts.is_leader]

    async def settled(self, numbers: set[int]) -> None:
        """Wait until these are the group, and one of them is in office."""
        async with asyncio.timeout(60):
            while not (  # noqa: ASYNC110
                all(len(self.workers[number].herder.seat.workers) == len(numbers) for number in numbers)
                and len(numbers & set(self.leaders)) == 1
            ):
                await asyncio.sleep(0.05)


async def until(client: httpx.AsyncClient, path: str, wanted: Callable[[Any], bool], timeout_s: float = 60) -> Any:
    content: Any = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                answer = await client.get(path)
                content = answer.json()
                if answer.status_code == 200 and wanted(content):
                    return content
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{path} stayed {content}") from None


def all_are(state: str, tasks: int) -> Callable[[Any], bool]:
    return lambda status: (
        [status["connector"]["state"], *(each["state"] for each in status["tasks"])] == [state] * (tasks + 1)
    )


@asynccontextmanager
async def running(settings: dict[str, str]) -> AsyncIterator[tuple[Worker, Callable[[], Awaitable[None]]]]:
    """A worker in a task of its own, and how to stop it before the others."""
    opened: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
    over, ended = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with open_worker(parse_worker(settings)) as worker:
            opened.set_result(worker)
            await over.wait()
        ended.set()

    async def stop() -> None:
        over.set()
        await ended.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run())
        yield await opened, stop
        over.set()


@pytest.fixture
async def group(worker_settings: Settings) -> AsyncIterator[Group]:
    """Three workers that have shared out what there is, nothing."""
    settings = worker_settings()
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(running(settings)) for _ in range(WORKERS)]
        workers = [worker for worker, _ in started]
        clients = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=each.url, timeout=90)) for each in workers
        ]
        group = Group(workers, clients, [stop for _, stop in started])
        await group.settled(set(range(WORKERS)))
        yield group


@pytest.fixture
def source(tmp_path: Path, unique: Callable[[str], str]) -> Callable[[], dict[str, str]]:
    """Make the configuration of a file source with a file of its own."""

    def make() -> dict[str, str]:
        file = tmp_path / unique("in")
        file.write_text("one\ntwo\n")
        return {"connector.class": "FileStreamSource", "file": str(file), "topic": unique("topic")}

    return make


async def test_every_call_works_from_every_worker(group: Group, source: Callable[[], dict[str, str]]) -> None:
    for number, (worker, api) in enumerate(zip(group.workers, group.clients, strict=True)):
        name, config = f"c/{number} ü", source()
        path = f"/connectors/c%2F{number}%20%C3%BC"
        answer = await api.post("/connectors", json={"name": name, "config": config})
        assert answer.status_code == 201, answer.text
        assert answer.headers["location"] == worker.url + path
        assert answer.headers.get("x-tidemill-position") is None
        assert name in (await api.get("/connectors")).json()
        assert (await api.get(f"{path}/config")).json() == {**config, "name": name}
        await until(api, f"{path}/status", all_are("RUNNING", 1))

        answer = await api.put(f"{path}/config", json={**config, "x": "1"})
        assert answer.status_code == 200, answer.text
        assert (await api.get(path)).json()["config"]["x"] == "1"
        answer = await api.patch(f"{path}/config", json={"x": None, "y": "2"})
        assert answer.status_code == 200 and answer.json()["config"] == {**config, "y": "2", "name": name}
        assert (await api.get(f"{path}/config")).json() == answer.json()["config"]

        assert (await api.put(f"{path}/pause")).status_code == 202
        await until(api, f"{path}/status", all_are("PAUSED", 1))
        assert (await api.put(f"{path}/resume")).status_code == 202
        await until(api, f"{path}/status", all_are("RUNNING", 1))

        assert (await api.post(f"{path}/restart")).status_code == 204
        answer = await api.post(f"{path}/restart?includeTasks=true")
        assert answer.status_code == 202 and answer.json()["name"] == name
        await until(api, f"{path}/status", all_are("RUNNING", 1))
        assert (await api.post(f"{path}/tasks/0/restart")).status_code == 204
        await until(api, f"{path}/status", all_are("RUNNING", 1))

        topics = {name: {"topics": [config["topic"]]}}
        await until(api, f"{path}/topics", lambda said, topics=topics: said == topics)  # type: ignore[misc]
        await until(api, f"{path}/offsets", lambda said: said["offsets"])
        answer = await api.patch(f"{path}/offsets", json={"offsets": []})
        assert answer.status_code == 400
        assert (await api.put(f"{path}/stop")).status_code == 204
        assert (await api.get(path)).json()["tasks"] == []
        moved = {"offsets": [{"partition": {"filename": config["file"]}, "offset": {"position": 4}}]}
        answer = await api.patch(f"{path}/offsets", json=moved)
        assert answer.status_code == 200, answer.text
        assert (await api.get(f"{path}/offsets")).json() == moved
        answer = await api.delete(f"{path}/offsets")
        assert answer.status_code == 200, answer.text
        assert (await api.get(f"{path}/offsets")).json() == {"offsets": []}
        assert (await api.put(f"{path}/topics/reset")).status_code == 202
        await until(api, f"{path}/topics", lambda said, name=name: said == {name: {"topics": []}})  # type: ignore[misc]

        answer = await api.put("/admin/loggers/tidemill.some.logger?scope=cluster", json={"level": "DEBUG"})
        assert answer.status_code == 204, answer.text
        assert (await api.delete(path)).status_code == 204
        assert (await api.get(path)).status_code == 404
        assert (await api.get("/connectors")).json() == []


async def test_refusals_are_the_same_from_every_worker(group: Group, source: Callable[[], dict[str, str]]) -> None:
    config = source()
    assert (await group.clients[0].put("/connectors/c/config", json=config)).status_code == 201
    calls: list[tuple[str, str, Any]] = [
        ("POST", "/connectors", {"name": "c", "config": config}),
        ("POST", "/connectors", {"name": "d", "config": {}}),
        ("PUT", "/connectors/d/config", {"connector.class": "NoSuch"}),
        ("PATCH", "/connectors/none/config", {}),
        ("DELETE", "/connectors/none", None),
        ("PUT", "/connectors/none/stop", None),
        ("POST", "/connectors/none/restart", None),
        ("POST", "/connectors/none/restart?onlyFailed=true", None),
        ("POST", "/connectors/none/tasks/0/restart", None),
        ("POST", "/connectors/c/tasks/77/restart", None),
        ("DELETE", "/connectors/c/offsets", None),
        ("POST", "/connectors/c/tasks", []),
        ("PUT", "/connectors/c/fence", None),
    ]
    for method, path, content in calls:
        answers = [await api.request(method, path, json=content) for api in group.clients]
        said = {(each.status_code, each.text) for each in answers}
        assert len(said) == 1 and answers[0].status_code >= 400, (path, said)


async def test_only_workers_submit_tasks(group: Group, source: Callable[[], dict[str, str]]) -> None:
    assert (await group.clients[0].put("/connectors/c/config", json=source())).status_code == 201
    for api in group.clients:
        assert (await api.post("/connectors/c/tasks", json=[])).json()["message"] == UNSIGNED
        answer = await api.post("/connectors/c/tasks", content=b"[]", headers=signed(b"guess", "HmacSHA256", b"[]"))
        assert (answer.status_code, answer.json()["message"]) == (403, WRONG)
    keys = {worker.herder.session_key for worker in group.workers}
    assert len(keys) == 1 and None not in keys, NO_KEY_YET


async def test_tasks_of_connectors_on_every_worker_get_written(
    group: Group, source: Callable[[], dict[str, str]]
) -> None:
    """Connectors are shared out, so most of them are split by workers that may not write what comes of it."""
    names = [f"c{number}" for number in range(2 * WORKERS)]
    async with asyncio.TaskGroup() as tasks:
        for number, name in enumerate(names):
            api = group.clients[number % WORKERS]
            tasks.create_task(api.put(f"/connectors/{name}/config", json=source()))
    for name in names:
        await until(group.clients[0], f"/connectors/{name}/status", all_are("RUNNING", 1))
    homes = set()
    for name in names:
        homes.add((await group.clients[0].get(f"/connectors/{name}/status")).json()["connector"]["worker_id"])
    assert homes == {worker.worker_id for worker in group.workers}


async def test_every_worker_tells_the_history_of_what_ran_anywhere(
    group: Group, source: Callable[[], dict[str, str]]
) -> None:
    """A task that moves leaves its runs behind, where whoever is asked finds them."""
    path = "/tidemill/connectors/c/history"
    assert (await group.clients[0].put("/connectors/c/config", json=source())).status_code == 201
    status = await until(group.clients[0], "/connectors/c/status", all_are("RUNNING", 1))
    answers = [(await api.get(path)).json() for api in group.clients]
    assert answers[0] == answers[1] == answers[2]
    assert [each["url"] for each in answers[0]["workers"]] == sorted(worker.url for worker in group.workers)
    assert all("since" in each and "problem" not in each for each in answers[0]["workers"])
    (run,) = answers[0]["tasks"][0]["runs"]
    home = status["tasks"][0]["worker_id"]
    assert run["worker_id"] == home and "ended" not in run
    (number,) = [number for number, worker in enumerate(group.workers) if worker.worker_id == home]
    assert (await group.clients[number].post("/connectors/c/tasks/0/restart")).status_code == 204
    other = group.clients[(number + 1) % WORKERS]
    found = await until(other, path, lambda said: len(said["tasks"][0]["runs"]) == 2)
    first, second = found["tasks"][0]["runs"]
    assert first["reason"] == "a restart was asked for" and "failure" not in first and first["ran_ms"] >= 0
    assert "ended" not in second
    await group.stops[number]()
    await group.settled(set(range(WORKERS)) - {number})
    found = await until(other, path, lambda said: len(said["workers"]) == WORKERS - 1)
    assert all("problem" not in each for each in found["workers"])
    assert (await other.get("/tidemill/connectors/none/history")).status_code == 404


async def test_two_that_create_the_same_connector_at_the_same_moment_get_two_answers(
    group: Group, source: Callable[[], dict[str, str]]
) -> None:
    config = source()
    async with asyncio.TaskGroup() as tasks:
        asked = [
            tasks.create_task(api.post("/connectors", json={"name": "c", "config": config})) for api in group.clients
        ]
    answers = [task.result() for task in asked]
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409]
    assert {answer.json()["message"] for answer in answers if answer.status_code == 409} == {
        "Connector c already exists"
    }


async def test_a_request_outlives_the_leader(group: Group, source: Callable[[], dict[str, str]]) -> None:
    """It is asked while the leader goes, and answered by the next one; nobody is told to come back later."""
    (leader,) = group.leaders
    api = group.clients[(leader + 1) % WORKERS]
    assert (await api.put("/connectors/c/config", json=source())).status_code == 201
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(group.stops[leader]())
        answers = []
        while group.workers[leader].herder.whereabouts.is_leader or len(answers) < 20:
            answers.append(await api.put("/connectors/c/config", json=source()))
    assert {answer.status_code for answer in answers} == {200}
    await group.settled(set(range(WORKERS)) - {leader})
    assert (await api.delete("/connectors/c")).status_code == 204
    terms = [worker.herder.office.terms.current for worker in group.workers]
    assert max(term.number for term in terms if term is not None) == 2


async def test_a_worker_with_other_topics_is_not_let_in(
    group: Group, worker_settings: Settings, source: Callable[[], dict[str, str]]
) -> None:
    """What it would be given it has never heard of, and what it knows nobody would do."""
    group_id = group.workers[0].group_id
    stranger = worker_settings({"group.id": group_id, "config.storage.topic": f"{group_id}-other"})
    with pytest.raises(ExceptionGroup) as refused:
        async with open_worker(parse_worker(stranger)):
            pass
    assert refused.group_contains(StartRefused, match=rf"group '{group_id}'.*{group_id}-config.*{group_id}-other")
    await group.settled(set(range(WORKERS)))
    assert (await group.clients[0].put("/connectors/c/config", json=source())).status_code == 201
    await until(group.clients[0], "/connectors/c/status", all_are("RUNNING", 1))


async def test_of_two_groups_on_the_same_topics_the_later_one_stays(worker_settings: Settings) -> None:
    """Neither can know of the other, and each would do everything."""
    settings = worker_settings()

    async def run_both() -> None:
        async with open_worker(parse_worker(settings)), running({**settings, "group.id": "another"}):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as refused:
        await run_both()
    assert refused.group_contains(GroupRefused, match="has taken over the topics")
