"""The herder on a real cluster, its processes scripted"""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pydantic import BaseModel

from tidemill import services
from tidemill.connect.api import InvalidConfig, Plugin, PluginKind, SourceTask
from tidemill.connect.config import parse_worker
from tidemill.connect.group.seat import Seat
from tidemill.connect.herder import events as e
from tidemill.connect.herder import service
from tidemill.connect.herder.commands import (
    Configure,
    Conflict,
    Create,
    Delete,
    Refused,
    Restart,
    SetLogLevel,
    SetTarget,
)
from tidemill.connect.herder.events import StartTask
from tidemill.connect.herder.office import NotInOffice
from tidemill.connect.herder.plugin_calls import off_loop, split
from tidemill.connect.herder.service import Herder, Surroundings
from tidemill.connect.herder.state import Submitted
from tidemill.connect.herder.terms import TERM_HEADER, Term
from tidemill.connect.loader import Plugins
from tidemill.connect.plugins.file import file_sink, file_source
from tidemill.connect.stores import (
    ConfigRecord,
    ConnectorConfig,
    InstanceStatus,
    KeyValue,
    State,
    TargetState,
    TaskConfig,
    TasksCommit,
    decode_status,
    encode_config,
    encode_offset_key,
    encode_status,
)
from tidemill.connect.task_spec import InitialState, TaskExited, TaskFailed, TaskId, TaskStarted
from tidemill.connect.topic_log import LogRecord, TopicLog, TopicLogError, ensure_topics
from tidemill.connect.worker import group_settings
from tidemill.core.runtime.clock import ManualClock

sys.path.insert(0, str(Path(__file__).parent))
from scripted_host import ScriptedHost

pytestmark = pytest.mark.integration

Settings = Callable[..., dict[str, str]]


class Options(BaseModel):
    parts: int = 1
    grow: int = 0  # how much longer a task's configuration is


def no_task(settings: Any) -> SourceTask:
    raise AssertionError("never started here")


def parts(settings: Options, tasks_max: int) -> Sequence[dict[str, str]]:
    if settings.parts < 0:
        raise ValueError("cannot be split like that")
    more = {"pad": "x" * settings.grow} if settings.grow else {}
    return [{"part": str(part), **more} for part in range(settings.parts)]


SOURCE = Plugin(name="Src", kind=PluginKind.SOURCE, version="2.0", config=Options, task=no_task, split=parts)
SINK = Plugin(name="Snk", kind=PluginKind.SINK, version="2.0", config=Options, task=no_task)
PLUGINS = Plugins([SOURCE, SINK], {"Src": "somewhere:source"})
ONE = TaskId("c", 0)


@dataclass
class Bench:
    """A herder and everything the test wants to look at."""

    herder: Herder
    host: ScriptedHost
    clock: ManualClock
    alarms: dict[str, tuple[int, Callable[[], None]]] = field(default_factory=dict)
    levels: list[tuple[str, str]] = field(default_factory=list)

    async def until(self, wanted: Callable[[], bool], timeout_s: float = 20) -> None:
        deadline = time.monotonic() + timeout_s
        while not wanted():
            assert time.monotonic() < deadline, (self.host.calls, self.herder.machine.board.every())
            await asyncio.sleep(0.01)

    def state(self, task: int | None = None) -> State | None:
        status = self.herder.machine.board.instance("c", task)
        return None if status is None else status.state


@pytest.fixture
def open_bench(worker_settings: Settings) -> Callable[..., Any]:
    """Open a herder with a scripted host; `group` continues another one's topics."""

    @asynccontextmanager
    async def open_it(settings: dict[str, str] | None = None, worker_id: str = "w:1") -> AsyncIterator[Bench]:
        config = parse_worker(settings or worker_settings())
        topics = (config.config_topic, config.offset_topic, config.status_topic)
        await asyncio.to_thread(ensure_topics, config.client, *topics, timeout_s=20)
        host, clock = ScriptedHost(), ManualClock()
        alarms: dict[str, tuple[int, Callable[[], None]]] = {}
        levels: list[tuple[str, str]] = []
        around = Surroundings(
            config=config,
            worker_id=worker_id,
            plugins=PLUGINS,
            host=host,
            clock=clock,
            alarm=lambda name, delay_ms, callback: alarms.__setitem__(name, (delay_ms, callback)),
            set_level=lambda logger, level: levels.append((logger, level)),
            group=group_settings(config, worker_id),
        )
        async with Herder(around) as herder:
            yield Bench(herder, host, clock, alarms, levels)

    return open_it


def config(**more: str) -> dict[str, str]:
    return {"name": "c", "connector.class": "Src", "tasks.max": "9", **more}


async def test_a_command_is_in_force_when_it_returns(open_bench: Any) -> None:
    async with open_bench() as bench:
        assert bench.herder.health == "healthy"
        decision = await bench.herder.command(Create(connector="c", config=config()))
        assert decision.created and bench.herder.machine.state.names() == ["c"]
        with pytest.raises(Conflict):
            await bench.herder.command(Create(connector="c", config=config()))
        await bench.until(lambda: bench.state(0) is State.RUNNING)
        await bench.herder.command(Delete(connector="c"))
        assert bench.herder.machine.state.names() == []
        await bench.until(lambda: not bench.herder.machine.board.every())


async def test_a_task_is_told_everything(open_bench: Any, worker_settings: Settings) -> None:
    settings = worker_settings({"producer.linger.ms": "7", "value.converter": "string", "client.id": "me"})
    async with open_bench(settings) as bench:
        own = config(parts="2") | {
            "producer.override.acks": "1",
            "consumer.override.fetch.max.wait.ms": "9",
            "key.converter": "json",
            "key.converter.schemas.enable": "false",
        }
        await bench.herder.command(Create(connector="c", config=own))
        await bench.until(lambda: len(bench.host.running) == 2)
        spec = bench.host.running[TaskId("c", 1)]
        assert spec.config == own | {"part": "1"}
        assert (spec.plugin, spec.kind, spec.worker_id) == ("somewhere:source", PluginKind.SOURCE, "w:1")
        assert spec.producer_config == {"linger.ms": "7", "acks": "1"}
        assert spec.consumer_config == {"fetch.wait.max.ms": "9"}
        assert (spec.key_converter.kind, spec.key_converter.options) == ("json", {"schemas.enable": "false"})
        assert spec.value_converter.kind == "string"
        assert spec.bootstrap_servers == settings["bootstrap.servers"]
        assert "bootstrap.servers" not in spec.client_config
        assert spec.offsets_topic == settings["offset.storage.topic"]
        assert (spec.offset_flush_interval_ms, spec.offset_flush_timeout_ms) == (200, 5_000)


async def test_a_killed_task_starts_again_at_its_time(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.herder.command(Create(connector="c", config=config()))
        await bench.until(lambda: bench.state(0) is State.RUNNING)
        first = bench.host.running[ONE].incarnation
        bench.host.exit(ONE, -9, "killed by SIGKILL")
        await bench.until(lambda: ONE in bench.host.running and bench.host.running[ONE].incarnation > first)
        await bench.until(
            lambda: bench.state(0) is State.RUNNING
        )  # or the first death's RESTARTING is taken for the next's
        bench.host.exit(ONE, -9, "killed by SIGKILL")
        await bench.until(lambda: bench.state(0) is State.RESTARTING)
        assert ONE not in bench.host.running
        delay_ms, callback = bench.alarms["restart c-0"]
        assert delay_ms == 500
        bench.clock.advance(500)
        callback()
        await bench.until(lambda: bench.state(0) is State.RUNNING)
        assert bench.host.running[ONE].incarnation > first + 1


async def test_what_another_has_by_now_is_not_said_to_be_nobodys(open_bench: Any, worker_settings: Settings) -> None:
    """In a group with Apache's workers, which say nothing twice; a worker that was cut off ends what it had late."""
    settings = worker_settings({"tidemill.group.protocol": "sessioned"})
    records: list[LogRecord] = []
    async with open_bench(settings) as bench:
        await bench.herder.command(Create(connector="c", config=config()))
        await bench.until(lambda: bench.state(0) is State.RUNNING)
        client, topic = parse_worker(settings).client, settings["status.storage.topic"]
        async with TopicLog(topic, client, records.extend, start_timeout_s=20, append_timeout_s=20) as status_log:
            theirs = InstanceStatus(connector="c", task=0, state=State.RUNNING, worker_id="java:8083", generation=99)
            await status_log.append([encode_status(theirs)])
            await bench.until(lambda: bench.herder.machine.board.instance("c", 0) == theirs)
            bench.herder.tell(e.Assigned(generation=1, connectors=frozenset(), tasks=frozenset()))
            await bench.until(lambda: not bench.herder.machine.alive())
            await bench.until(lambda: bench.state() is State.UNASSIGNED)
            await asyncio.sleep(0.5)  # a wrong word would come now
            told = [decode_status(record.key, record.value) for record in records]
    assert [each for each in told if isinstance(each, InstanceStatus) and each.task == 0][-1] == theirs


async def test_a_process_that_cannot_be_made_is_a_failed_task(open_bench: Any) -> None:
    async with open_bench() as bench:
        bench.host.refuse = OSError("no more processes")
        await bench.herder.command(Create(connector="c", config=config()))
        await bench.until(lambda: bench.state(0) is State.FAILED)
        status = bench.herder.machine.board.instance("c", 0)
        assert status is not None and "no more processes" in (status.trace or "")


def failed(bench: Bench, trace: str, task: int = 0) -> None:
    """Let a running task fail with this text."""
    incarnation = bench.host.running[TaskId("c", task)].incarnation
    bench.host.say(TaskFailed(task=TaskId("c", task), incarnation=incarnation, trace=trace))


def trace(bench: Bench, task: int = 0) -> str:
    status = bench.herder.machine.board.instance("c", task)
    return "" if status is None or status.trace is None else status.trace


async def test_an_error_text_of_any_length_costs_nobody_else_anything(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.herder.command(Create(connector="c", config=config(parts="3")))
        await bench.until(lambda: bench.state(2) is State.RUNNING)
        failed(bench, "Traceback\n" + "x" * 1_500_000 + "\nValueError: the reason")
        failed(bench, "no file \udcff", task=1)
        await bench.until(lambda: bench.state(0) is bench.state(1) is State.FAILED)
        assert trace(bench).startswith("Traceback") and trace(bench).endswith("ValueError: the reason")
        assert len(trace(bench)) < 100_000 and trace(bench, 1) == "no file ?"
        assert bench.state(2) is State.RUNNING and bench.herder.health == "healthy"


async def test_a_status_its_topic_does_not_take_is_told_without_its_text(
    open_bench: Any, worker_settings: Settings
) -> None:
    settings = worker_settings({"status.storage.max.message.bytes": "4000"})
    async with open_bench(settings) as bench:
        await bench.herder.command(Create(connector="c", config=config(parts="3")))
        await bench.until(lambda: bench.state(2) is State.RUNNING)
        failed(bench, "x" * 20_000)
        failed(bench, "a short one", task=1)
        await bench.until(lambda: bench.state(0) is bench.state(1) is State.FAILED)
        assert "max.message.bytes" in trace(bench) and trace(bench, 1) == "a short one"


async def test_tasks_their_topic_does_not_take_fail_the_connector(open_bench: Any, worker_settings: Settings) -> None:
    async with open_bench(worker_settings({"config.storage.max.message.bytes": "4000"})) as bench:
        await bench.herder.command(Create(connector="c", config=config(grow="9000")))
        await bench.until(lambda: bench.state() is State.FAILED)
        status = bench.herder.machine.board.instance("c")
        assert "max.message.bytes of the config topic" in status.trace
        await bench.herder.command(Configure(connector="c", config=config()))
        await bench.until(lambda: bench.state() is State.RUNNING and bench.state(0) is State.RUNNING)


@pytest.mark.parametrize(
    "asked",
    [{"secret": "${file:/x:pw}"}, {"transforms": "unwrap", "transforms.unwrap.type": "no.Such"}],
    ids=["secret", "transforms"],
)
async def test_a_connector_another_worker_took_in_is_not_run_without_what_it_asks_for(
    open_bench: Any, worker_settings: Settings, asked: dict[str, str]
) -> None:
    """Its tasks stand in the topic already, as its plugin made them elsewhere."""
    settings = worker_settings()
    records: list[ConfigRecord] = [ConnectorConfig(connector="c", properties=config(**asked))]
    records += [TaskConfig(connector="c", task=0, properties=config(part="0", **asked))]
    async with open_bench(settings):
        pass
    producer = Producer({"bootstrap.servers": settings["bootstrap.servers"]})
    for record in (*records, TasksCommit(connector="c", tasks=1)):
        key, value = encode_config(record)
        producer.produce(settings["config.storage.topic"], key=key, value=value)
    producer.flush(20)
    async with open_bench(settings) as bench:
        await bench.until(lambda: bench.state() is bench.state(0) is State.FAILED)
        assert not bench.host.calls
        assert list(asked)[-1] in trace(bench) and "Traceback" not in trace(bench)


async def test_a_plugin_that_cannot_be_split_is_a_failed_connector(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.herder.command(Create(connector="c", config=config(parts="-1")))
        await bench.until(lambda: bench.state() is State.FAILED)
        await bench.herder.command(Configure(connector="c", config={"connector.class": "Gone"}))
        await bench.until(lambda: "Gone" in (bench.herder.machine.board.instance("c").trace or ""))
        assert "Traceback" not in bench.herder.machine.board.instance("c").trace
        await bench.herder.command(Configure(connector="c", config=config()))
        await bench.until(lambda: bench.state() is State.RUNNING and bench.state(0) is State.RUNNING)


async def test_a_host_that_fails_a_command_does_not_end_the_worker(open_bench: Any) -> None:
    async with open_bench() as bench:
        await bench.herder.command(Create(connector="c", config=config()))
        await bench.until(lambda: bench.state(0) is State.RUNNING)
        await bench.herder.command(SetTarget(connector="c", target=TargetState.PAUSED))
        await bench.herder.command(SetTarget(connector="c", target=TargetState.STARTED))
        await bench.until(lambda: "resume c-0" in bench.host.calls)
        await bench.herder.command(Delete(connector="c"))
        await bench.until(lambda: not bench.host.running)


async def test_leaving_stops_tasks_and_says_so_to_the_next(open_bench: Any, worker_settings: Settings) -> None:
    settings = worker_settings()
    async with open_bench(settings) as bench:
        await bench.herder.command(Create(connector="c", config=config(parts="3")))
        await bench.until(lambda: bench.state(2) is State.RUNNING)
        before = bench.herder.machine.board.generation
    assert not bench.host.running
    assert [bench.host.calls.count(f"stop c-{task}") for task in range(3)] == [1, 1, 1]
    async with open_bench(settings) as later:
        seen = later.herder.machine.board
        assert seen.generation >= before >= 1
        await later.until(lambda: later.state(2) is State.RUNNING)
        assert all(status.generation > before for status in seen.every())
        # It computed the same tasks, so nothing was written again but the record that it takes office with.
        assert later.herder.machine.state.end_offset <= bench.herder.machine.state.end_offset + 1


async def test_only_so_many_processes_start_at_a_time(open_bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "STARTS_MAX", 2)
    monkeypatch.setattr(service, "START_SLOT_S", 0.3)
    async with open_bench() as bench:
        bench.host.silent = True  # nobody says that it has started
        await bench.herder.command(Create(connector="c", config=config(parts="5")))
        await bench.until(lambda: len(bench.host.running) == 2)
        await asyncio.sleep(0)
        assert len(bench.host.running) == 2
        started = bench.host.running[ONE]
        bench.host.say(TaskStarted(task=ONE, incarnation=started.incarnation, pid=1))
        await bench.until(lambda: len(bench.host.running) == 3)
        await bench.until(lambda: len(bench.host.running) == 5)  # the slots of the silent ones come free with time
        await bench.herder.command(SetTarget(connector="c", target=TargetState.STOPPED))
        await bench.until(lambda: not bench.host.running)


async def test_a_task_stopped_before_its_turn_is_never_started(
    open_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "STARTS_MAX", 1)
    async with open_bench() as bench:
        bench.host.silent = True
        await bench.herder.command(Create(connector="c", config=config(parts="3")))
        await bench.until(lambda: len(bench.host.running) == 1)
        await bench.herder.command(Delete(connector="c"))
        await bench.until(lambda: not bench.herder.machine.runs)
        assert [call for call in bench.host.calls if call.startswith("start")] == ["start c-0"]


async def test_what_is_said_to_run_here_and_does_not_is_over(open_bench: Any) -> None:
    """So a worker that was out of its group waits for nobody but others."""
    async with open_bench() as bench:
        await bench.herder.command(Create(connector="c", config=config()))
        await bench.until(lambda: bench.state(0) is State.RUNNING)
        generation = bench.herder.machine.board.generation
        for task, (worker_id, above) in enumerate([("w:1", 0), ("w:1", 0), ("w:1", 1), ("w:2", 0)]):
            status = InstanceStatus(
                connector="c", task=task, state=State.RUNNING, worker_id=worker_id, generation=generation + above
            )
            bench.herder.machine.board.apply(status)
        said = {each.task for each in bench.herder.said_to_run()}
        assert said == {0, 2, 3}, "its process; who had its address later; another worker's"


async def test_topic_creation_switched_off_is_kept_from_tasks(open_bench: Any, worker_settings: Settings) -> None:
    own = config(**{"topic.creation.default.partitions": "3"})
    for switch, expected in (("true", own | {"part": "0"}), ("false", config(part="0"))):
        async with open_bench(worker_settings({"topic.creation.enable": switch})) as bench:
            await bench.herder.command(Create(connector="c", config=own))
            await bench.until(lambda: bool(bench.host.running))
            assert bench.host.running[ONE].config == expected


async def test_a_restart_request_of_before_is_not_acted_on(open_bench: Any, worker_settings: Settings) -> None:
    settings = worker_settings()
    async with open_bench(settings) as bench:
        await bench.herder.command(Create(connector="c", config=config()))
        await bench.until(lambda: bench.state(0) is State.RUNNING)
        await bench.herder.command(Restart(connector="c", include_tasks=True, only_failed=False))
        await bench.until(lambda: bench.host.calls.count("start c-0") == 2)
        await bench.herder.command(SetLogLevel(logger="x", level="DEBUG"))
        assert bench.levels == [("x", "DEBUG")]
    async with open_bench(settings) as later:
        await later.until(lambda: later.state(0) is State.RUNNING)
        assert later.host.calls == ["start c-0"] and later.levels == []


async def rewrite(bench: Bench, records: Sequence[KeyValue], submitted: Submitted | None = None) -> None:
    """Offsets of the connector as it is, or as it was."""
    submitted = submitted or bench.herder.machine.state.submitted("c")
    assert submitted is not None
    await bench.herder.write_offsets("c", submitted, lambda: records)


async def test_source_offsets_are_rewritten_only_without_tasks(open_bench: Any) -> None:
    key = encode_offset_key("c", {"file": "x"})
    async with open_bench() as bench:
        await bench.herder.command(Create(connector="c", config=config()))
        await bench.until(lambda: bench.state(0) is State.RUNNING)
        with pytest.raises(Refused):
            await rewrite(bench, [(key, b'{"pos":1}')])
        bench.host.hold_stops.clear()
        await bench.herder.command(SetTarget(connector="c", target=TargetState.STOPPED))
        waiting = asyncio.create_task(bench.herder.quiet("c", 20))
        bench.host.hold_stops.set()
        for _ in range(1_000):
            if waiting.done():
                break
            bench.clock.advance(1)
            await asyncio.sleep(0.01)
        assert await waiting
        await rewrite(bench, [(key, b'{"pos":1}')])
        assert [stored.offset for stored in bench.herder.offsets.stored("c")] == [{"pos": 1}]


async def stopped(bench: Bench) -> None:
    await bench.herder.command(Create(connector="c", config=config()))
    await bench.until(lambda: bench.state(0) is State.RUNNING)
    await bench.herder.command(SetTarget(connector="c", target=TargetState.STOPPED))
    await bench.until(lambda: not bench.herder.machine.alive("c") and not bench.herder.seat.others_hold("c"))


async def test_what_a_task_has_written_last_is_reset_too(open_bench: Any, worker_settings: Settings) -> None:
    """It has ended, and the worker has not read that yet."""
    settings = worker_settings()
    task = Producer({"bootstrap.servers": settings["bootstrap.servers"]})
    async with open_bench(settings) as bench:
        await stopped(bench)
        submitted = bench.herder.machine.state.submitted("c")
        task.produce(settings["offset.storage.topic"], b'{"pos":1}', encode_offset_key("c", {"file": "x"}))
        assert task.flush(30) == 0  # it holds up the worker meanwhile
        await bench.herder.write_offsets("c", submitted, lambda: bench.herder.offsets.reset("c"))
        assert not bench.herder.offsets.stored("c")


async def test_offsets_of_a_connector_that_was_resumed_meanwhile_are_left_alone(open_bench: Any) -> None:
    """Its tasks may have read them already, and would write over what was acknowledged."""
    async with open_bench() as bench:
        await stopped(bench)
        await bench.herder.command(SetTarget(connector="c", target=TargetState.STARTED))
        with pytest.raises(Conflict):
            await rewrite(bench, [(encode_offset_key("c", {"file": "x"}), b'{"pos":1}')])
        assert not bench.herder.offsets.stored("c")


async def test_offsets_of_another_connector_of_that_name_are_left_alone(open_bench: Any) -> None:
    async with open_bench() as bench:
        await stopped(bench)
        before = bench.herder.machine.state.submitted("c")
        await bench.herder.command(Delete(connector="c"))
        await bench.until(lambda: bench.herder.machine.state.submitted("c") is None)
        await bench.herder.command(Create(connector="c", config=config(), initial_state=TargetState.STOPPED))
        await bench.until(lambda: bench.herder.machine.state.submitted("c") is not None)
        record = (encode_offset_key("c", {"file": "x"}), b'{"pos":1}')
        with pytest.raises(Conflict):
            await rewrite(bench, [record], before)
        assert not bench.herder.offsets.stored("c")
        await rewrite(bench, [record])
        assert bench.herder.offsets.stored("c")


class Meddled(list[KeyValue]):
    """Records; somebody does something when they are first looked at, which is when they are about to be written."""

    meddle: Callable[[], None] | None = None

    def __iter__(self) -> Iterator[KeyValue]:
        if self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            meddle()
        return super().__iter__()


def take_office(bench: Bench, settings: Settings) -> None:
    """As another worker that leads now, and may have resumed the connector."""
    assert bench.herder.office.key is not None
    rival = Term(bench.herder.office.terms.current.number + 1, "rival").encoded()
    producer = Producer({"bootstrap.servers": settings["bootstrap.servers"]})
    key, value = encode_config(bench.herder.office.key)
    producer.produce(settings["config.storage.topic"], key=key, value=value, headers=[(TERM_HEADER, rival)])
    assert producer.flush(20) == 0


async def test_offsets_that_were_written_while_another_took_office_are_not_said_to_count(
    open_bench: Any, worker_settings: Settings
) -> None:
    settings = worker_settings()
    async with open_bench(settings) as bench:
        await stopped(bench)
        records = Meddled([(encode_offset_key("c", {"file": "x"}), b'{"pos":1}')])
        records.meddle = lambda: take_office(bench, settings)
        with pytest.raises(TopicLogError, match="Another worker took over the group"):
            await rewrite(bench, records)


async def test_offsets_are_not_written_where_another_took_office_while_the_topic_was_read(
    open_bench: Any, worker_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, read = worker_settings(), TopicLog.catch_up
    async with open_bench(settings) as bench:
        await stopped(bench)

        async def read_slowly(log: TopicLog, timeout_s: float) -> None:
            await read(log, timeout_s)
            await asyncio.to_thread(take_office, bench, settings)

        monkeypatch.setattr(TopicLog, "catch_up", read_slowly)
        with pytest.raises(NotInOffice):
            await rewrite(bench, [(encode_offset_key("c", {"file": "x"}), b'{"pos":1}')])
        assert not bench.herder.offsets.stored("c")


async def test_last_words_of_tasks_nobody_knows_are_harmless(open_bench: Any) -> None:
    async with open_bench() as bench:
        bench.host.say(TaskExited(task=TaskId("ghost", 7), incarnation=1, returncode=0, reason=""))
        await bench.herder.command(Create(connector="c", config=config()))
        await bench.until(lambda: bench.state(0) is State.RUNNING)


@pytest.mark.crash
async def test_a_cluster_that_goes_away_is_an_error_and_no_end(
    tmp_path: Path, worker_settings: Settings, open_bench: Any
) -> None:
    broker = services.broker("b", tmp_path / "data", log=tmp_path / "broker.log").start()
    address = broker.facts["address"]
    settings = worker_settings() | {"bootstrap.servers": address, "request.timeout.ms": "1500"}
    try:
        async with open_bench(settings) as bench:
            await bench.herder.command(Create(connector="c", config=config()))
            await bench.until(lambda: bench.state(0) is State.RUNNING)
            broker.kill()
            with pytest.raises(TopicLogError):
                await bench.herder.command(SetTarget(connector="c", target=TargetState.PAUSED))
            bench.host.exit(ONE, -9, "killed")  # its status cannot be written now
            await bench.until(lambda: bench.herder.health == "unhealthy")
            broker = services.broker("b", tmp_path / "data", listen=address, log=tmp_path / "broker.log")
            await asyncio.to_thread(broker.start)
            await bench.until(lambda: bench.herder.health == "healthy", timeout_s=30)
            # Whether its lease has ended meanwhile or not, what was said last is what is.
            await bench.until(lambda: ONE in bench.host.running and bench.state(0) is State.RUNNING, timeout_s=30)
    finally:
        broker.stop()


def made_anew(bootstrap: str, topic: str, records: int) -> None:
    """Delete the topic and create it again, with records that nobody understands."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    deadline = time.monotonic() + 20
    while True:
        try:
            admin.create_topics([NewTopic(topic, num_partitions=1, config={"cleanup.policy": "compact"})])[
                topic
            ].result(20)
            break
        except KafkaException:  # the old one has not gone everywhere yet
            assert time.monotonic() < deadline
            time.sleep(0.05)
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": "20000"})
    for number in range(records):
        producer.produce(topic, key=f"strange-{number}", value=b"")
    producer.flush(20)


@pytest.mark.parametrize(("role", "records"), [("config", 0), ("config", 200), ("status", 0)])
async def test_a_worker_ends_whose_topic_was_made_anew(
    worker_settings: Settings, open_bench: Any, role: str, records: int
) -> None:
    """With a line that names it: it has connectors that stand nowhere any more. Also where nobody writes into it."""
    settings = worker_settings({"status.storage.partitions": "1"})
    topic = settings[f"{role}.storage.topic"]

    async def work() -> None:
        async with open_bench(settings) as bench:
            await bench.herder.command(Create(connector="c", config=config()))
            await bench.until(lambda: bench.state(0) is State.RUNNING)
            await asyncio.to_thread(made_anew, settings["bootstrap.servers"], topic, records)
            await asyncio.sleep(30)

    with pytest.raises(BaseExceptionGroup) as ended:
        await work()
    told = ended.value.subgroup(TopicLogError)
    assert told is not None and f"topic '{topic}' is another one than this worker has read" in repr(told)


async def test_a_worker_goes_on_and_says_so_when_the_offsets_were_made_anew(
    worker_settings: Settings, open_bench: Any
) -> None:
    settings = worker_settings({"offset.storage.partitions": "1"})
    topic = settings["offset.storage.topic"]
    async with open_bench(settings) as bench:
        await bench.herder.command(Create(connector="c", config=config()))
        await bench.until(lambda: bench.state(0) is State.RUNNING)
        await asyncio.to_thread(made_anew, settings["bootstrap.servers"], topic, 0)
        await bench.until(lambda: bench.herder.health == "unhealthy", timeout_s=30)
        problem = bench.herder.topic_problem
        assert problem is not None and f"topic '{topic}'" in problem.message
        await bench.until(lambda: "is another one" in bench.herder.topic_problem.message, timeout_s=30)
        assert ONE in bench.host.running


# ------------------------------------------------------------------ by itself


def test_splitting() -> None:
    assert split(SOURCE, config(parts="2")) == (config(parts="2", part="0"), config(parts="2", part="1"))
    assert split(SINK, config(**{"tasks.max": "3"})) == (config(**{"tasks.max": "3"}),) * 3
    with pytest.raises(InvalidConfig, match=r"has generated 10 tasks, which is more than tasks\.max=9"):
        split(SOURCE, config(parts="10"))
    assert len(split(SOURCE, config(parts="10", **{"tasks.max.enforce": "false"}))) == 10


def test_tasks_that_java_may_run_name_their_class() -> None:
    for plugin, kind in ((file_source, "Source"), (file_sink, "Sink")):
        ours = config(file="f", topic="t", **{"connector.class": f"FileStream{kind}", "tasks.max": "1"})
        assert split(plugin, ours) == (ours,)
        java = {"task.class": f"org.apache.kafka.connect.file.FileStream{kind}Task"}
        assert split(plugin, ours, for_java=True) == ({**ours, **java},)
    assert split(SOURCE, config(parts="1"), for_java=True) == split(SOURCE, config(parts="1")), (
        "Java has no such plugin"
    )


async def test_a_task_made_by_java_gets_what_it_lacks_from_its_connector(
    open_bench: Any, worker_settings: Settings
) -> None:
    """In a group of Kafka's protocol, in which a worker of Java's may have asked the plugin."""
    async with open_bench(worker_settings({"tidemill.group.protocol": "sessioned"})) as bench:
        await bench.herder.command(Create(connector="c", config=config()))
        await bench.until(lambda: ONE in bench.host.running)
        made = {"task.class": "T", "part": "java's"}
        start = StartTask(task=ONE, incarnation=9, config=made, initial_state=InitialState.STARTED)
        assert bench.herder.spec(start).config == config(part="java's", **{"task.class": "T"})


async def test_who_follows_by_kafkas_protocol_knows_the_others_by_what_they_have_written(
    open_bench: Any, worker_settings: Settings
) -> None:
    settings = worker_settings({"tidemill.group.protocol": "sessioned"})
    async with open_bench(settings) as first, open_bench(settings, "w:2") as second:
        await second.until(lambda: second.herder.seat.leader_url == "http://w:1")
        assert second.herder.known_urls == {"http://w:1", "http://w:2"} == first.herder.known_urls
        for worker_id, state in (("java:1", State.RUNNING), ("java:2", State.UNASSIGNED)):
            status = InstanceStatus(connector=worker_id, task=0, state=state, worker_id=worker_id, generation=1)
            second.herder.machine.board.apply(status)
        assert second.herder.known_urls == {"http://w:1", "http://w:2", "http://java:1"}


async def test_who_is_known_to_lead_and_to_do_something_is_one_worker(
    open_bench: Any, worker_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's workers end their address with a slash, and have none in their statuses."""
    settings = worker_settings({"tidemill.group.protocol": "sessioned"})
    async with open_bench(settings) as first, open_bench(settings, "w:2") as second:
        await second.until(lambda: second.herder.seat.leader_url == first.herder.seat.url)
        status = InstanceStatus(connector="c", task=0, state=State.RUNNING, worker_id="java:1", generation=1)
        second.herder.machine.board.apply(status)
        monkeypatch.setattr(Seat, "leader_url", "http://java:1/")
        assert second.herder.known_urls == {"http://w:2", "http://java:1"}


async def test_plugin_code_off_the_loop() -> None:
    assert await off_loop(lambda: threading.current_thread().name, 5) == "plugin call"
    with pytest.raises(ZeroDivisionError):
        await off_loop(lambda: 1 // 0, 5)
    with pytest.raises(RuntimeError, match="the plugin ended its thread: SystemExit"):
        await off_loop(sys.exit, 5)
    hang = threading.Event()
    with pytest.raises(TimeoutError):
        await off_loop(hang.wait, 0.01)
    hang.set()
