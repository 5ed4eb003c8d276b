"""A broker counted: what goes up never goes back, and ten thousand partitions keep nobody waiting."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client, running_broker
from tests.broker.handlers.data_path import fetch, make_topic, produce, produce_request, records
from tidemill.broker.coordination.leaderships import ShardState
from tidemill.broker.figures import (
    GROUPS,
    NO_PARTITIONS,
    OF_GROUPS,
    OFFSETS,
    PARTITIONS,
    PARTS,
    TOPICS,
    Figures,
    GroupRow,
    LogRow,
    PositionRow,
    take_figures,
)
from tidemill.broker.groups.events import CommitOffsets, OffsetToCommit
from tidemill.broker.groups.states import GroupState
from tidemill.broker.log import turns
from tidemill.broker.log.partition import Traffic
from tidemill.broker.node import Broker
from tidemill.broker.quorum.metadata import TopicRef
from tidemill.core.runtime.metric_parts import MetricParts
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import encode_request

SERIES = 10_000


async def taken(broker: Broker, series: int) -> Figures:
    """The figures, of which every part must have been taken."""
    found = await take_figures(broker, series, MetricParts(*PARTS))
    assert found.failed == frozenset()
    return found


async def commit(broker: Broker, group: str, topic: str, offsets: dict[int, int]) -> None:
    await broker.ensure_offsets_topic()
    await broker.groups.commit(
        CommitOffsets(
            request_id=broker.groups.request_id(),
            group_id=group,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            retention_ms=-1,
            offsets=tuple(OffsetToCommit(topic, partition, at, -1, "") for partition, at in offsets.items()),
        )
    )


async def test_traffic_stays_counted_when_its_topic_goes(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        kept, gone = await make_topic(broker, "kept"), await make_topic(broker, "gone")
        batch = records(b"a", b"b", b"c")
        for topic in (kept, gone):
            await produce(client, topic, batch)
            await fetch(client, topic)
        before = await taken(broker, SERIES)
        each = Traffic(messages_in=3, bytes_in=len(batch), bytes_out=len(batch))
        assert before.topics == {"kept": each, "gone": each}
        assert before.traffic == Traffic(6, 2 * len(batch), 2 * len(batch))
        await broker.controller.delete_topics([TopicRef(name="gone")])
        after = await taken(broker, SERIES)
        assert after.topics == {"kept": each}
        assert after.traffic == before.traffic


async def test_a_topic_made_anew_begins_at_nothing_and_the_sum_goes_on(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        batch = records(b"a")
        for _ in range(2):
            await produce(client, await make_topic(broker, "t"), batch)
            figures = await taken(broker, SERIES)
            await broker.controller.delete_topics([TopicRef(name="t")])
        assert figures.topics["t"].messages_in == 1
        assert figures.traffic.messages_in == 2


async def test_logs_and_replicas(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "t", partitions=2, segment_bytes="100")
        batch = records(b"x")
        for _ in range(3):
            await produce(client, topic, batch, partition=1)
        figures = await taken(broker, SERIES)
        assert figures.logs == (LogRow("t", 0, 0, 0, 0, 1), LogRow("t", 1, 3 * len(batch), 0, 3, 3))
        found = figures.replicas
        assert (found.here, found.led, found.topics, found.partitions) == (2, 2, 1, 2)
        assert (found.under_replicated, found.offline) == (0, 0)
        assert figures.syncs >= 3
        (listener,) = figures.listeners
        assert (listener.name, listener.connections, listener.connections_made) == ("PLAINTEXT", 1, 1)


async def test_groups_and_how_far_behind_they_are(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        topic = await make_topic(broker, "t", partitions=2)
        await produce(client, topic, records(b"a", b"b", b"c"))
        await commit(broker, "g", "t", {0: 1, 1: 0})
        groups = (await taken(broker, SERIES)).groups
        assert groups.rows == (GroupRow("g", 0),)
        assert groups.positions == (PositionRow("g", "t", 0, 1, 2), PositionRow("g", "t", 1, 0, 0))
        assert (groups.states[GroupState.EMPTY], groups.states[GroupState.STABLE], groups.offsets) == (1, 0, 2)
        assert groups.partitions == {**NO_PARTITIONS, ShardState.ACTIVE: len(broker.groups.shards())}
        await broker.logs.delete("t")
        assert [row.lag for row in (await taken(broker, SERIES)).groups.positions] == [None, None]


async def test_no_more_rows_than_asked_for_and_sums_over_all(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (broker, client):
        for name in ("a", "b", "c"):
            await produce(client, await make_topic(broker, name, partitions=2), records(b"x"))
        await commit(broker, "g", "a", {0: 0, 1: 0})
        await commit(broker, "h", "a", {0: 0})
        figures = await taken(broker, 1)
        assert [list(figures.topics), [row.topic for row in figures.logs]] == [["a"], ["a"]]
        partitions = 6 + broker.config.offsets_topic_num_partitions
        assert figures.left_out[TOPICS] == 3  # b, c and the groups' own
        assert figures.left_out[PARTITIONS] == partitions - 1
        assert [row.group_id for row in figures.groups.positions] == ["h"], "all of a group or nothing"
        assert figures.left_out[OFFSETS] == 2
        assert figures.groups.offsets == 3
        assert figures.traffic.messages_in == 3 + 3, "with what was committed"
        nothing = await taken(broker, 0)
        assert (dict(nothing.topics), nothing.logs, nothing.groups.rows) == ({}, (), ())
        assert nothing.traffic == figures.traffic


async def test_a_group_with_an_endless_name_has_no_rows(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await make_topic(broker)
        await commit(broker, "g" * 256, "t", {0: 0})
        figures = await taken(broker, SERIES)
        assert (figures.groups.rows, figures.groups.positions, figures.groups.offsets) == ((), (), 1)
        assert (figures.left_out[GROUPS], figures.left_out[OFFSETS]) == (1, 1)


async def test_requests_and_errors_are_counted_where_somebody_watches(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, metrics_listener="127.0.0.1:0") as (broker, client):
        topic = await make_topic(broker)
        for _ in range(3):
            await produce(client, topic, records(b"x"))
        wrong = bytearray(records(b"x"))
        wrong[-1] ^= 1
        assert (await produce(client, topic, bytes(wrong))).error_code == 2
        assert (await fetch(client, topic, 0)).error_code == 0
        for _ in range(2):  # by the general way and by the shortcut
            assert (await fetch(client, topic, 99)).error_code == 1
        figures = await taken(broker, SERIES)
        assert figures.requests == {ApiKey.PRODUCE: 4, ApiKey.FETCH: 3}
        assert {row.api_key: row.requests for row in figures.times} == figures.requests
        assert figures.errors == {(ApiKey.PRODUCE, 2): 1, (ApiKey.FETCH, 1): 2}
    async with running_broker(tmp_path) as broker:
        assert (await taken(broker, SERIES)).requests == {}


async def test_a_produce_without_answer_that_fails_is_a_request_and_an_error(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path, metrics_listener="127.0.0.1:0") as (broker, client):
        topic = await make_topic(broker)
        for batch in (records(b"x"), b"not a batch" * 10):
            client.send(encode_request(ApiKey.PRODUCE, 9, 1, "c", produce_request(topic, {0: batch}, 9, acks=0)))
        with pytest.raises(asyncio.IncompleteReadError):
            await client.receive()
        figures = await taken(broker, SERIES)
        assert figures.requests == {ApiKey.PRODUCE: 2}
        assert figures.errors == {(ApiKey.PRODUCE, 2): 1}


async def test_a_part_that_cannot_be_taken_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_and_client(tmp_path, metrics_listener="127.0.0.1:0") as (broker, client):
        await produce(client, await make_topic(broker), records(b"x"))
        whole = await taken(broker, SERIES)

        def broken() -> list[str]:
            raise LookupError("no groups")

        monkeypatch.setattr(broker.groups, "group_ids", broken)
        parts = MetricParts(*PARTS)
        found = await take_figures(broker, SERIES, parts)
    assert found.failed == {OF_GROUPS}
    assert parts.errors == dict.fromkeys(PARTS, 0) | {OF_GROUPS: 1}
    assert replace(found, failed=frozenset()) == whole  # there were no groups


async def test_every_partition_may_end_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With turns that are over at once, everybody else has the loop between any two partitions, in every walk."""
    async with running_broker(tmp_path, flush_policy="os") as broker:
        await make_topic(broker, partitions=50)
        await commit(broker, "g", "t", dict.fromkeys(range(50), 0))
        turns_of_others = 0

        async def others() -> None:
            nonlocal turns_of_others
            while True:
                turns_of_others += 1
                await asyncio.sleep(0)

        monkeypatch.setattr(turns, "TURN_S", 0.0)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(others())
            await taken(broker, SERIES)
            running.cancel()
    assert turns_of_others >= 4 * 50, "over logs, partitions of topics twice, positions of a group"
