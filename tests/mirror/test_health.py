"""Every way a mirror can be stuck is named while it lasts, with what to do, and is over when it is over.

Each test brings the trouble about with real brokers and looks the way `tidemill mirror status` does, from outside.
`TIDEMILL_TOLD_WITHIN_S=5` is what a machine with nothing else to do keeps.
"""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from benchmarks import peers
from tests.mirror.conftest import Pair, read_records
from tests.mirror.test_flow import until
from tidemill import services
from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.config import parse_properties
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.types import TopicPartition
from tidemill.free_ports import free_ports
from tidemill.mirror.config import MirrorConfig, parse_mirror_config
from tidemill.mirror.health import ENDS_KEPT_MAX, FlowHealth, LagClock
from tidemill.mirror.inspection import FlowInspector, FlowReport, Life
from tidemill.mirror.link import PartitionLink
from tidemill.mirror.naming import offset_map_topic
from tidemill.mirror.reporting import problems_of
from tidemill.mirror.runner import MirrorRunner
from tidemill.mirror.status_records import FlowState
from tidemill.services import Service
from tidemill.testing.plugin import BROKER_SETTINGS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TOLD_WITHIN_S = float(os.environ.get("TIDEMILL_TOLD_WITHIN_S", "20"))


@asynccontextmanager
async def running(config: MirrorConfig, *, is_ready: bool = True) -> AsyncIterator[MirrorRunner]:
    """A mirror, ready unless it cannot be, until the end of the `with`."""
    runner = MirrorRunner(config)
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(runner.run(ready.set))
        if is_ready:
            await asyncio.wait_for(ready.wait(), 30)
        yield runner
        work.cancel()


async def look(config: MirrorConfig) -> FlowReport:
    """What somebody at another terminal sees."""
    inspector = FlowInspector(config, config.enabled_flows()[0])
    try:
        return await inspector.report()
    finally:
        inspector.close()


async def problems(config: MirrorConfig) -> list[str]:
    return problems_of(await look(config), SystemClock().now_ms())


async def named(config: MirrorConfig, *words: str) -> None:
    """Wait until one problem has all `words`."""

    async def there() -> bool:
        return any(all(word in problem for word in words) for problem in await problems(config))

    await until(there, f"nobody names {words}", TOLD_WITHIN_S)


async def well(config: MirrorConfig, within_s: float = TOLD_WITHIN_S) -> None:
    """Wait until nothing is wrong."""

    async def nothing() -> bool:
        found = await look(config)
        return found.life is Life.RUNNING and not problems_of(found, SystemClock().now_ms())

    await until(nothing, "it is never over", within_s)


async def copied(pair: Pair, count: int) -> None:
    """Wait until the copy has that many records."""

    async def there() -> bool:
        if pair.remote not in (await pair.target.metadata()).topics:
            return False
        return len(await read_records(pair.target, pair.remote)) == count

    await until(there, f"{count} records are not mirrored")


@pytest.fixture
def mortals(tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    """Two brokers of the test's own, which may be stopped and come back at their address."""
    brokers = [
        services.broker(
            name,
            tmp_path / name,
            listen=f"127.0.0.1:{port}",
            settings=BROKER_SETTINGS,
            log=tmp_path / f"{name}.log",
        ).start()
        for name, port in zip("AB", free_ports(2), strict=True)
    ]
    yield brokers[0], brokers[1]
    for broker in brokers:
        broker.stop()


@asynccontextmanager
async def between(mortals: tuple[Service, Service]) -> AsyncIterator[Pair]:
    a, b = (broker.facts["address"] for broker in mortals)
    async with ClusterClient(a, call_timeout_ms=20_000) as source, ClusterClient(b, call_timeout_ms=20_000) as target:
        yield Pair(a, b, source, target, f"t{uuid.uuid4().hex[:8]}")


@pytest.mark.parametrize("number", [0, 1], ids=["source", "target"])
async def test_a_cluster_is_away(mortals: tuple[Service, Service], number: int) -> None:
    async with between(mortals) as pair:
        await pair.create(partitions=1)
        await pair.write(0, [b"x"])
        config = pair.config()
        async with running(config) as runner:
            await copied(pair, 1)
            await well(config)
            await asyncio.to_thread(mortals[number].kill)
            alias = "AB"[number]
            await named(config, f"cluster {alias}: unreachable", "since", f"correct {alias}.bootstrap.servers")
            assert runner.health[0].probes[alias].unreachable_seconds > 0
            await asyncio.to_thread(mortals[number].restart)
            await well(config)
            await pair.write(0, [b"y"])
            await copied(pair, 2)


async def test_a_cluster_hangs(mortals: tuple[Service, Service]) -> None:
    async with between(mortals) as pair:
        await pair.create(partitions=1)
        config = pair.config()
        async with running(config):
            await well(config)
            os.kill(mortals[1].pid, signal.SIGSTOP)
            try:
                await named(config, "cluster B: unreachable", "no answer")
            finally:
                os.kill(mortals[1].pid, signal.SIGCONT)
            await well(config)


async def test_a_topic_cannot_be_created(pair: Pair) -> None:
    long = pair.topic.ljust(249, "x")  # with the prefix it is longer than a name may be
    config = pair.config(f"topics = {pair.topic}x*\n")
    async with running(config) as runner:
        await well(config)
        await Admin(pair.source).create_topics([NewTopic(name=long, partitions=1)])
        await runner.flows[0].refresh_topics()
        await named(config, f"topic A.{long}", "cannot create topic", "`topics.exclude`")
        await Admin(pair.source).delete_topics([long])
        await well(config)


async def test_the_source_topic_goes_and_comes_back_as_another(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"old"] * 3)
    config = pair.config()
    async with running(config):
        await copied(pair, 3)
        await Admin(pair.source).delete_topics([pair.topic])
        await named(config, f"topic {pair.topic} of A", "not there any more")
        await pair.create(partitions=1)
        await pair.write(0, [b"new"] * 5)
        await named(config, f"partition {pair.topic}-0", "deleted and created again", f"delete {pair.remote} of B")
        assert [row.value for row in await read_records(pair.target, pair.remote)] == [b"old"] * 3
        await Admin(pair.target).delete_topics([pair.remote])
        await copied(pair, 5)
        await well(config)
    async with running(config):
        await pair.write(0, [b"new"])
        await copied(pair, 6)
    assert {row.value for row in await read_records(pair.target, pair.remote)} == {b"new"}


async def test_the_copy_is_deleted(pair: Pair) -> None:
    await pair.create(partitions=2)
    for number in range(3):
        await pair.write(0, [b"%d" % number])
    config = pair.config()
    async with running(config):
        await copied(pair, 3)
        await Admin(pair.target).delete_topics([pair.remote])
        await copied(pair, 3)
        await well(config)
    await pair.write(0, [b"3"])
    async with running(config):
        await copied(pair, 4)
        await well(config)
    assert [row.value for row in await read_records(pair.target, pair.remote)] == [b"%d" % n for n in range(4)]


async def test_a_batch_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than from one look at its state to the next, which would else see it only between two pauses.
    monkeypatch.setattr("tidemill.mirror.link.PARK_MS", 1_500)
    await pair.create(partitions=1)
    remote = NewTopic(name=pair.remote, partitions=1, configs={"max.message.bytes": "1000"})
    await Admin(pair.target).create_topics([remote])
    await pair.write(0, [bytes(5000)])
    config = pair.config("sync.topic.configs.enabled = false\n")
    async with running(config):
        await named(config, f"partition {pair.topic}-0: parked", "raise max.message.bytes", "tried again")
        await Admin(pair.target).alter_topic_configs({pair.remote: {"max.message.bytes": "100000"}})
        await well(config)
        await copied(pair, 1)


async def test_somebody_else_writes_to_the_copy(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"1"])
    config = pair.config()
    async with running(config):
        await copied(pair, 1)
        foreign = build_batch([NewRecord(timestamp=1, key=None, value=b"foreign")])
        await pair.target.append(TopicPartition(pair.remote, 0), foreign)
        await pair.write(0, [b"2"])
        await named(config, f"partition {pair.topic}-0: failed", "somebody else writes")
        await Admin(pair.target).delete_topics([pair.remote])
        await well(config)
        await copied(pair, 2)


async def test_retention_was_faster(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"1"])
    stopping = pair.config("A.consumer.auto.offset.reset = none\n")
    async with running(stopping):
        await copied(pair, 1)
    await pair.write(0, [b"2"])
    await pair.write(0, [b"3"])
    admin = AdminClient({"bootstrap.servers": pair.a})
    for future in admin.delete_records([ClientPartition(pair.topic, 0, 2)]).values():
        await asyncio.to_thread(future.result, 20)
    async with running(stopping):
        await named(stopping, f"partition {pair.topic}-0: failed", "the source deleted offsets 1 to 1", "earliest")
    config = pair.config()
    async with running(config):
        await well(config, 20)  # what the mirror before it may have sent is waited for, and the status says so
        await copied(pair, 2)
        row = (await look(config)).row
        assert row is not None
        assert row.lost == 1


async def test_another_mirror_is_at_work_or_takes_over(pair: Pair) -> None:
    await pair.create(partitions=1)
    config = pair.config()

    async def run_by(health: FlowHealth) -> bool:
        report = await look(config)
        return report.life is Life.RUNNING and report.row is not None and report.row.mirror == health.row().mirror

    async with AsyncExitStack() as later:
        async with running(config) as first:
            second = await later.enter_async_context(running(config))
            await until(lambda: second.health[0].row().state is FlowState.STANDBY, "the second does not stand by")
            assert second.health[0].row().lag is None, "it knows nothing of how far the other one is"
            await until(lambda: run_by(first.health[0]), "the first is not told of")
        await until(lambda: run_by(second.health[0]), "the second is not told of")
        await well(config)


async def test_a_row_of_the_map_cannot_be_read(new_pair: Pair) -> None:
    await new_pair.create(partitions=1)
    await new_pair.write(0, [b"x"])
    config = new_pair.config()
    async with running(config):
        await copied(new_pair, 1)
    table = TopicPartition(offset_map_topic("A"), 0)
    await new_pair.target.append(table, build_batch([NewRecord(timestamp=1, key=b"note", value=b"of somebody else")]))
    async with running(config, is_ready=False):
        await named(config, "flow A->B", table.topic, "the key 6e6f7465", "delete that row")
        await new_pair.target.append(table, build_batch([NewRecord(timestamp=1, key=b"note", value=None)]))
        await well(config)
        await new_pair.write(0, [b"y"])
        await copied(new_pair, 2)


@pytest.mark.kafka_peer
@pytest.mark.java
async def test_the_target_forbids_it(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.mirror.link.PARK_MS", 1_500)  # as above
    if reason := peers.available():
        pytest.skip(f"Apache Kafka cannot be started here: {reason}")
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with peers.kafka_node(tmp_path, heap="400M", settings=rules) as (address, _):
        async with ClusterClient(address, call_timeout_ms=20_000) as target:
            guarded = Pair(pair.a, address, pair.source, target, pair.topic)
            await guarded.create(partitions=1)
            await guarded.write(0, [b"x"])
            admin = AdminClient({"bootstrap.servers": address})
            rule = (ResourceType.TOPIC, guarded.remote, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
            deny = AclBinding(*rule, AclOperation.WRITE, AclPermissionType.DENY)
            allow = AclBinding(*rule, AclOperation.ALL, AclPermissionType.ALLOW)
            for future in admin.create_acls([allow, deny]).values():
                await asyncio.to_thread(future.result, 20)
            config = guarded.config("sync.topic.configs.enabled = false\n")
            async with running(config):
                await named(config, f"partition {pair.topic}-0: parked", "grant the mirror WRITE")
                mended = AclBindingFilter(*rule, AclOperation.WRITE, AclPermissionType.DENY)
                for future in admin.delete_acls([mended]).values():
                    await asyncio.to_thread(future.result, 20)
                await well(config)
                await copied(guarded, 1)


async def test_one_cluster_under_two_names_ends_its_flow_and_no_other(pair: Pair) -> None:
    await pair.create(partitions=1)
    await pair.write(0, [b"x"])
    more = f"clusters = A, B, C\nC.bootstrap.servers = localhost:{pair.a.rpartition(':')[2]}\nC->A.enabled = true\n"
    config = pair.config(more)
    async with running(config) as runner:
        await copied(pair, 1)
        ended = {health.flow.config.name: health.ended for health in runner.health}
        assert ended["A->B"] == ""
        assert "are the same cluster" in ended["C->A"]
        inspector = FlowInspector(config, config.flow("C", "A"))

        async def given_up() -> bool:
            report = await inspector.report()
            found = problems_of(report, SystemClock().now_ms())
            return report.life is Life.ENDED and len(found) == 1 and "give it a new id" in found[0]

        await until(given_up, "its status does not say so")
        inspector.close()


async def test_the_last_flow_says_why_it_ended(pair: Pair) -> None:
    port = pair.a.rpartition(":")[2]
    text = f"clusters = A, D\nA.bootstrap.servers = {pair.a}\nD.bootstrap.servers = localhost:{port}\n"
    config = parse_mirror_config(parse_properties(text + "A->D.enabled = true\nemit.heartbeats.enabled = false\n"))
    with pytest.raises(BaseExceptionGroup):
        await MirrorRunner(config).run(lambda: None)
    report = await look(config)
    assert report.life is Life.ENDED
    assert ["are the same cluster" in problem for problem in problems_of(report, SystemClock().now_ms())] == [True]


async def test_a_mirror_that_stumbles_over_a_bug_says_so_last(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.create(partitions=1)
    config = pair.config()

    async def stumble() -> None:
        async with running(config):
            monkeypatch.setattr(PartitionLink, "step", None)
            await pair.write(0, [b"1"])
            await asyncio.sleep(20)

    with pytest.raises(BaseExceptionGroup) as caught:
        await stumble()
    assert caught.group_contains(TypeError)
    report = await look(config)
    assert report.life is Life.ENDED
    assert ["TypeError" in problem for problem in problems_of(report, SystemClock().now_ms())] == [True]


def test_the_age_of_what_is_not_mirrored() -> None:
    clock = LagClock()
    assert clock.look(10.0, mirrored=5, end=5) == 0.0
    assert clock.look(11.0, mirrored=5, end=8) == 0.0, "it has only just been seen"
    assert clock.look(13.0, mirrored=5, end=9) == 2.0
    assert clock.look(14.0, mirrored=8, end=9) == 1.0, "what came at 11 is mirrored, what came at 13 is not"
    assert clock.look(15.0, mirrored=9, end=9) == 0.0


def test_the_age_of_a_long_standstill_needs_bounded_memory() -> None:
    clock = LagClock()
    for second in range(3 * ENDS_KEPT_MAX):
        age = clock.look(float(second), mirrored=0, end=second + 1)
    assert age == 3 * ENDS_KEPT_MAX - 1
