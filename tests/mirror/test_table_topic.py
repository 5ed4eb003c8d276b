"""Compacted topics that are made at the first write."""

import pytest

from tests.mirror.conftest import Pair, read_records
from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.runtime.clock import ManualClock
from tidemill.mirror.table_topic import TableTopic

pytestmark = pytest.mark.integration


async def test_the_topic_is_made_compacted_with_one_partition(pair: Pair) -> None:
    table = TableTopic(pair.target, pair.topic, factor=3, clock=ManualClock(1234))
    await table.append([])
    assert pair.topic not in (await pair.target.metadata()).topics, "nothing to write, nothing made"
    await table.append([(b"k", b"1"), (b"k", b"2")])
    records = await read_records(pair.target, pair.topic)
    assert [(row.key, row.value, row.timestamp) for row in records] == [(b"k", b"1", 1234), (b"k", b"2", 1234)]
    assert len((await pair.target.metadata([pair.topic])).topics[pair.topic].partitions) == 1
    settings = {entry.name: entry.value for entry in (await Admin(pair.target).topic_configs([pair.topic]))[pair.topic]}
    assert settings["cleanup.policy"] == "compact"


async def test_a_topic_that_is_there_is_used(pair: Pair) -> None:
    await Admin(pair.target).create_topics([NewTopic(name=pair.topic, partitions=3)])
    await TableTopic(pair.target, pair.topic, factor=1, clock=ManualClock()).append([(b"k", b"v")])
    assert len(await read_records(pair.target, pair.topic)) == 1
