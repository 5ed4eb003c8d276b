"""Offset syncs in MirrorMaker 2's topic, from the exact map."""

import pytest

from tests.mirror.conftest import Pair, read_records
from tests.mirror.test_flow import caught_up, mirroring, until
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.types import TopicPartition
from tidemill.mirror.formats import OffsetSync
from tidemill.mirror.offset_syncs import OffsetSyncs

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("location", "topic"), [("source", "mm2-offset-syncs.B.internal"), ("target", "mm2-offset-syncs.A.internal")]
)
async def test_the_newest_pair_of_each_partition_is_written_once(pair: Pair, location: str, topic: str) -> None:
    await pair.create(partitions=2)
    await pair.write(1, [b"x"] * 3)
    async with mirroring(pair, f"offset-syncs.topic.location = {location}\n") as flow:
        await until(lambda: caught_up(flow), "the mirror does not catch up")
        syncs = OffsetSyncs(flow.config, pair.source, pair.target, SystemClock())
        await syncs.emit(flow.entries)
        await syncs.emit(flow.entries)
        await pair.write(1, [b"x"])
        entry = flow.entries[TopicPartition(pair.topic, 1)]
        await until(lambda: entry.link.progress.target_end == 4, "the record does not arrive")
        await syncs.emit(flow.entries)
        syncs.forget_written()  # the cluster was put back to an older state
        await syncs.emit(flow.entries)
    rows = await read_records(pair.source if location == "source" else pair.target, topic)
    found = [OffsetSync.decode(row.key or b"", row.value or b"") for row in rows]
    assert [row for row in found if row.topic == pair.topic] == [
        OffsetSync(topic=pair.topic, partition=1, upstream_offset=offset, offset=offset) for offset in (2, 3, 3)
    ]
