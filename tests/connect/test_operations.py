"""What the REST API can do, where HTTP does not matter: races, lost clusters, switched-off features"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from tidemill import services
from tidemill.connect.api import Plugin, PluginKind, SourceTask
from tidemill.connect.config import parse_worker
from tidemill.connect.entities import ConnectorOffset, HistoryOfWorker
from tidemill.connect.group.seat import Seat
from tidemill.connect.herder.events import Assigned, Tick
from tidemill.connect.herder.machine import HerderMachine
from tidemill.connect.herder.service import Herder, Surroundings
from tidemill.connect.loader import Plugins
from tidemill.connect.operations import Operations, RestError
from tidemill.connect.stores import State, TargetState
from tidemill.connect.topic_log import ensure_topics
from tidemill.connect.validation import Surroundings as ValidationSurroundings
from tidemill.connect.validation import Validator
from tidemill.connect.worker import group_settings
from tidemill.core.runtime.clock import SystemClock

sys.path.insert(0, str(Path(__file__).parent / "herder"))
from scripted_host import ScriptedHost

pytestmark = pytest.mark.integration

Settings = Callable[..., dict[str, str]]
Meddle = Callable[[], Any]


class Options(BaseModel):
    level: str = "1"


def no_task(settings: Any) -> SourceTask:
    raise AssertionError("never started here")


SOURCE = Plugin(
    name="Src",
    kind=PluginKind.SOURCE,
    version="1",
    config=Options,
    task=no_task,
    check=lambda settings: None,
    left_behind=lambda settings: [f"slot of level {settings.level}; drop it by hand"],
)
CONFIG = {"connector.class": "Src"}


class Bench:
    """Operations whose preflight a test can use to let something happen in between."""

    def __init__(self, herder: Herder, host: ScriptedHost, settings: dict[str, str]) -> None:
        self.herder = herder
        self.host = host
        self.meddle: Meddle | None = None
        config = parse_worker(settings)
        around = ValidationSurroundings(
            group_id=config.group_id, override_policy="All", check=self._check, check_timeout_s=20
        )
        self.api = Operations(herder, Plugins([SOURCE]), Validator(around), config)

    async def _check(self, plugin: Plugin, config: Any) -> list[Any]:
        if self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            await meddle()
        return []

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not wanted():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.fixture
def open_bench(worker_settings: Settings) -> Callable[..., Any]:
    """Operations on a herder with a scripted host."""

    @asynccontextmanager
    async def open_it(more: dict[str, str] | None = None) -> AsyncIterator[Bench]:
        settings = worker_settings(more)
        config = parse_worker(settings)
        topics = (config.config_topic, config.offset_topic, config.status_topic)
        await asyncio.to_thread(ensure_topics, config.client, *topics, timeout_s=20)
        host = ScriptedHost()
        around = Surroundings(
            config=config,
            worker_id="w:1",
            plugins=Plugins([SOURCE]),
            host=host,
            clock=SystemClock(),
            alarm=lambda name, delay_ms, callback: None,
            set_level=lambda logger, level: None,
            group=group_settings(config, "w:1"),
        )
        async with Herder(around) as herder:
            yield Bench(herder, host, settings)

    return open_it


def test_a_worker_that_has_no_place_yet_does_not_claim_to_know() -> None:
    machine = HerderMachine("w:1")
    herder = cast("Herder", SimpleNamespace(machine=machine, seat=SimpleNamespace(url="http://w:1")))
    nothing = cast("Any", None)
    api = Operations(herder, nothing, nothing, nothing)
    (told,) = api.history("c").workers
    assert told == HistoryOfWorker(url="http://w:1", problem="it has no place in its group yet")
    machine.step(Tick(now_ms=1_000, up_ms=1_000))
    machine.step(Assigned(generation=1))
    (told,) = api.history("c").workers
    assert told == HistoryOfWorker(url="http://w:1", since="1970-01-01T00:00:01.000Z")


async def test_patches_that_meet_are_both_kept(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.api.create("c", CONFIG, None)
        bench.meddle = lambda: bench.api.patch("c", {"b": "2"})
        info = await bench.api.patch("c", {"a": "1"})
        assert info.config == {"connector.class": "Src", "name": "c", "b": "2", "a": "1"}


async def test_tasks_of_a_worker_without_a_place_in_its_group_say_so(
    open_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bench() as bench:
        await bench.api.create("c", CONFIG, None)
        board = bench.herder.machine.board
        await bench.until(lambda: (told := board.instance("c", 0)) is not None and told.state is State.RUNNING)
        assert bench.api.status("c").problem is None
        monkeypatch.setattr(Seat, "holds_lease", property(lambda seat: False))
        monkeypatch.setattr(Seat, "trouble", property(lambda seat: ("nobody answers", 5_000)))
        problem = bench.api.task_status("c", 0).problem
        assert problem is not None and problem.message.startswith("this worker has no place in group")
        assert problem.message.endswith(": nobody answers")
        assert "task 0: this worker has no place" in bench.api.status("c").problem.message


async def test_a_worker_that_is_behind_the_config_topic_says_so(
    open_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bench() as bench:
        assert bench.api.group().problem is None
        monkeypatch.setattr(Seat, "behind", property(lambda seat: ("it has to read", 500)))
        assert bench.api.group().problem is None, "it always has for a moment"
        monkeypatch.setattr(Seat, "behind", property(lambda seat: ("it has to read", 5_000)))
        assert bench.api.group().problem.message == "it has to read"


async def test_a_patch_that_is_always_overtaken_is_refused(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.api.create("c", CONFIG, None)
        count = 0

        async def again() -> None:
            nonlocal count
            count += 1
            await bench.herder.command(configure(str(count)))
            bench.meddle = again

        bench.meddle = again
        with pytest.raises(RestError, match="stale configuration") as caught:
            await bench.api.patch("c", {"a": "1"})
        assert caught.value.status == 409 and count == 3


def configure(level: str) -> Any:
    """A change by somebody else."""
    from tidemill.connect.herder.commands import Configure

    return Configure(connector="c", config={**CONFIG, "name": "c", "level": level})


async def test_who_deletes_a_connector_is_told_what_is_left(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.api.create("c", CONFIG | {"level": "7"}, None)
        with capture_logs() as lines:
            await bench.api.delete("c")
        assert [line["left"] for line in lines if "left" in line] == ["slot of level 7; drop it by hand"]
        with pytest.raises(RestError), capture_logs() as lines:
            await bench.api.delete("c")
        assert not [line for line in lines if "left" in line]


async def test_a_deleted_connector_has_no_status_while_its_tasks_end(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.api.create("c", CONFIG, None)
        board = bench.herder.machine.board
        await bench.until(lambda: (told := board.instance("c", 0)) is not None and told.state is State.RUNNING)
        bench.host.hold_stops.clear()
        await bench.api.delete("c")
        for call in (lambda: bench.api.status("c"), lambda: bench.api.task_status("c", 0)):
            with pytest.raises(RestError, match="No status found for") as caught:
                call()
            assert caught.value.status == 404
        bench.host.hold_stops.set()


async def test_a_connector_deleted_while_it_is_patched(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.api.create("c", CONFIG, None)
        bench.meddle = lambda: bench.api.delete("c")
        with pytest.raises(RestError, match="Connector c not found") as caught:
            await bench.api.patch("c", {"a": "1"})
        assert caught.value.status == 404


async def test_a_connector_created_meanwhile(open_bench: Any) -> None:
    async with open_bench() as bench:
        bench.meddle = lambda: bench.api.create("c", CONFIG, None)
        with pytest.raises(RestError, match="Connector c already exists") as caught:
            await bench.api.create("c", CONFIG, None)
        assert caught.value.status == 409


async def test_the_record_of_topics_switched_off(open_bench: Any) -> None:
    async with open_bench({"topic.tracking.enable": "false"}) as bench:
        for call in (bench.api.topics, bench.api.reset_topics):
            with pytest.raises(RestError, match=r"Topic tracking is disabled\.") as caught:
                call("c")
            assert caught.value.status == 403
    async with open_bench({"topic.tracking.allow.reset": "false"}) as bench:
        assert bench.api.topics("c") == []
        with pytest.raises(RestError, match=r"Topic tracking reset is disabled\."):
            bench.api.reset_topics("c")


async def test_offsets_wait_for_the_last_task_of_a_stopped_connector(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.api.create("c", CONFIG, None)
        await bench.until(lambda: bool(bench.host.running))
        bench.host.hold_stops.clear()
        await bench.api.set_target("c", TargetState.STOPPED)
        change = [ConnectorOffset(partition={"file": "x"}, offset={"pos": 1})]
        altering = asyncio.create_task(bench.api.alter_offsets("c", change))
        await asyncio.sleep(0)
        assert not altering.done()
        bench.host.hold_stops.set()
        assert "altered successfully" in await altering
        assert (await bench.api.offsets("c")).offsets == tuple(change)
        gone = [ConnectorOffset(partition={"file": "x"}, offset=None)]
        await bench.api.alter_offsets("c", gone)
        assert (await bench.api.offsets("c")).offsets == ()


async def test_reads_of_a_connector_whose_plugin_is_gone(open_bench: Any) -> None:
    async with open_bench() as bench:
        from tidemill.connect.herder.commands import Create

        await bench.herder.command(Create(connector="old", config={"name": "old", "connector.class": "Removed"}))
        await bench.until(lambda: bench.herder.machine.board.instance("old") is not None)
        assert bench.api.info("old").type == "unknown"
        status = bench.api.status("old")
        assert (status.type, status.connector.state) == ("unknown", State.FAILED.value)
        assert "Removed" in (status.connector.trace or "")
        assert (await bench.api.offsets("old")).offsets == ()


async def test_offsets_of_a_connector_whose_plugin_is_gone_are_not_changed(open_bench: Any) -> None:
    async with open_bench() as bench:
        from tidemill.connect.herder.commands import Create

        await bench.herder.command(Create(connector="old", config={"name": "old", "connector.class": "Removed"}))
        await bench.until(lambda: bench.herder.machine.board.instance("old") is not None)
        await bench.api.set_target("old", TargetState.STOPPED)
        change = [ConnectorOffset(partition={"file": "x"}, offset={"pos": 1})]
        for call in (lambda: bench.api.alter_offsets("old", change), lambda: bench.api.reset_offsets("old")):
            with pytest.raises(RestError, match=r"of connector old are not changed: its plugin is missing.* Removed,"):
                await call()
        assert (await bench.api.offsets("old")).offsets == ()


@pytest.mark.crash
async def test_a_write_the_cluster_does_not_take(tmp_path: Path, open_bench: Any) -> None:
    broker = services.broker("b", tmp_path / "data", log=tmp_path / "broker.log").start()
    try:
        more = {"bootstrap.servers": broker.facts["address"], "request.timeout.ms": "1000"}
        async with open_bench(more) as bench:
            await bench.api.create("c", CONFIG, TargetState.PAUSED)
            await bench.until(lambda: bool(bench.host.running))
            broker.kill()
            stuck = r"Failed to write to config topic; .* safely retried: cannot write to topic '.*': .*timed out"
            with pytest.raises(RestError, match=stuck) as caught:
                await bench.api.delete("c")
            assert caught.value.status == 500
            assert bench.api.info("c").name == "c"  # reads go on
            broker = services.broker("b", tmp_path / "data", listen=more["bootstrap.servers"], log=tmp_path / "b2")
            broker.start()
    finally:
        broker.stop()
