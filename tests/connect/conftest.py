"""A Kafka cluster, task processes and their events for the Connect tests"""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.connect.remote.own_cgroup import own_cgroup
from tidemill.connect.api import ConverterSpec, PluginKind
from tidemill.connect.config import parse_worker
from tidemill.connect.remote.cgroups import Cgroups, cgroups
from tidemill.connect.remote.host import TaskHost
from tidemill.connect.task_spec import TaskEvent, TaskExited, TaskFailed, TaskId, TaskSpec
from tidemill.connect.worker import Worker, open_worker

EventT = TypeVar("EventT")

PLUGINS = Path(__file__).parent / "remote"
"""Where the task processes find `task_plugins`."""


def python_path(*folders: Path) -> str:
    """A search path for child processes: these folders, then what this process was given."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Address of a Kafka cluster: TIDEMILL_TEST_BOOTSTRAP, for tests against another one, else a broker of our own."""
    given = os.environ.get("TIDEMILL_TEST_BOOTSTRAP")
    return given or request.getfixturevalue("tidemill_broker").facts["address"]


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test, and no other run on the same cluster, uses."""
    return lambda name: f"{name}-{os.getpid()}-{time.time_ns() // 1000}-{next(_numbers)}"


class Events:
    """What a host has said so far, and waiting for more of it."""

    def __init__(self) -> None:
        self.seen: list[TaskEvent] = []
        self._more = asyncio.Condition()

    async def collect(self, host: TaskHost) -> None:
        async for event in host.events():
            async with self._more:
                self.seen.append(event)
                self._more.notify_all()

    async def wait(
        self, kind: type[EventT], matches: Callable[[EventT], bool] = lambda event: True, timeout_s: float = 30
    ) -> EventT:
        """The first event of `kind` that matches, whether it is here already or comes in time."""
        found: list[EventT] = []

        def here() -> bool:
            found[:] = [event for event in self.seen if isinstance(event, kind) and matches(event)]
            return bool(found)

        async with self._more:
            try:
                await asyncio.wait_for(self._more.wait_for(here), timeout_s)
            except TimeoutError:
                raise AssertionError(f"no {kind.__name__} within {timeout_s} s, only {self.told()}") from None
        return found[0]

    def told(self) -> list[Any]:
        """Everything but the reports, and the last of those."""
        rest = [event for event in self.seen if type(event).__name__ != "TaskReport"]
        return rest + [event for event in self.seen if type(event).__name__ == "TaskReport"][-1:]

    def failures(self) -> list[str]:
        return [event.trace for event in self.seen if isinstance(event, TaskFailed)]


class Running:
    """A host with its events and short ways to start things on it."""

    def __init__(self, host: TaskHost, events: Events) -> None:
        self.host = host
        self.events = events

    async def start(self, spec: TaskSpec) -> TaskId:
        await self.host.start_task(spec)
        return spec.task

    async def ended(self, task: TaskId, timeout_s: float = 30) -> TaskExited:
        return await self.events.wait(TaskExited, lambda event: event.task == task, timeout_s)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A task host whose processes find the test plugins, and the test's own; every task is stopped at the end."""
    async with _running(tmp_path) as host:
        yield host


@pytest.fixture
async def running_in_groups(tmp_path: Path) -> AsyncIterator[Running]:
    """The same with control groups, where the machine has them."""
    with own_cgroup() as part, cgroups(str(part)) as taken:
        async with _running(tmp_path, taken) as host:
            yield host


@pytest.fixture
async def running_in_threes(tmp_path: Path) -> AsyncIterator[Running]:
    """The same with three tasks in a process at most."""
    async with _running(tmp_path, shared_max=3) as host:
        yield host


@contextlib.asynccontextmanager
async def _running(tmp_path: Path, taken: Cgroups | None = None, shared_max: int = 16) -> AsyncIterator[Running]:
    events = Events()
    environ = {**os.environ, "PYTHONPATH": python_path(PLUGINS, tmp_path)}
    async with (
        asyncio.TaskGroup() as tasks,
        TaskHost(environ=environ, sample_interval_s=0.2, cgroups=taken, shared_max=shared_max) as host,
    ):
        tasks.create_task(events.collect(host))
        yield Running(host, events)


@pytest.fixture
def spec(unique: Callable[[str], str]) -> Callable[..., TaskSpec]:
    """Make a specification: `spec("task_plugins:numbers", {"topic": …})`."""

    def make(
        plugin: str,
        config: Mapping[str, str] | None = None,
        *,
        kind: PluginKind = PluginKind.SOURCE,
        name: str | None = None,
        task: int = 0,
        incarnation: int = 1,
        bootstrap: str = "127.0.0.1:1",
        offsets_topic: str = "offsets",
        flush_ms: int = 200,
        **more: Any,
    ) -> TaskSpec:
        return TaskSpec(
            task=TaskId(name or unique("connector"), task),
            incarnation=incarnation,
            plugin=plugin,
            kind=kind,
            config=dict(config or {}),
            bootstrap_servers=bootstrap,
            key_converter=more.pop("key_converter", ConverterSpec(kind="string")),
            value_converter=more.pop(
                "value_converter", ConverterSpec(kind="json", options={"schemas.enable": "false"})
            ),
            offsets_topic=offsets_topic,
            worker_id="127.0.0.1:8083",
            offset_flush_interval_ms=flush_ms,
            **more,
        )

    return make


@pytest.fixture
def worker_settings(bootstrap: str, unique: Callable[[str], str]) -> Callable[..., dict[str, str]]:
    """Settings of a worker with topics of its own: `worker_settings({"key": "value"}, group="…")`."""

    def make(more: Mapping[str, str] | None = None, *, group: str | None = None) -> dict[str, str]:
        group = group or unique("group")
        topics = {f"{role}.storage.topic": f"{group}-{role}" for role in ("config", "offset", "status")}
        return {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "listeners": "http://127.0.0.1:0",
            "offset.storage.partitions": "3",
            "status.storage.partitions": "2",
            "offset.flush.interval.ms": "200",
            **topics,
            **(more or {}),
        }

    return make


@pytest.fixture
async def worker(worker_settings: Callable[..., dict[str, str]]) -> AsyncIterator[Worker]:
    """A whole worker in this process, with the plugins that are installed."""
    async with open_worker(parse_worker(worker_settings())) as running_worker:
        yield running_worker
