"""The same random requests, read in every way there is: the same bytes back, and the same bytes in the logs"""

import random
import struct
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.broker.handlers.data_path import fetch, produce_request
from tests.broker.handlers.short_way import TOPICS, Served, answer_bytes, one
from tests.broker.log.rejection_table import REJECTIONS
from tests.broker.many_records import many_records
from tidemill.broker.dispatch import Exchange, Peer
from tidemill.broker.handlers.produce_several import SeveralBatches
from tidemill.broker.quorum.image import TopicImage
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.framing import RequestHeader, encode_request
from tidemill.core.wire.messages.produce import ProduceRequest
from tidemill.core.wire.produce_frame import read_produce_frame

NOW_MS = 1_700_000_000_000
LATE_MS = 4 * NOW_MS
BATCHES = [
    *(row.batch for row in REJECTIONS),
    many_records(30_000),
    many_records(30_000, keyed=False),
    *(
        build_batch([NewRecord(NOW_MS, key, b"v" * size) for key in keys], codec=codec)
        for keys in ((b"k",), (b"k", None, b"l"), (None, None))
        for codec in ("none", "gzip", "zstd")
        for size in (1, 30, 3000)
    ),
    *(
        build_batch([NewRecord(time, key, b"v") for time, key in rows])
        for rows in (((NOW_MS, b"k"), (LATE_MS, b"l")), ((NOW_MS, None), (LATE_MS, None), (LATE_MS, b"k")))
    ),
    *(
        build_batch([NewRecord(NOW_MS, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=number)
        for number in (0, 0, 1, 2, 2, 3, 1, 9)
    ),
]


class OnlySeveral(Served):
    """Reads requests with a single batch too as if they had several."""

    def memo(self, broker: Any, version: int, peer: Peer) -> Any:
        several = SeveralBatches(broker, version, peer)

        def shortcut(frame: memoryview) -> Exchange | None:
            found = read_produce_frame(frame, version)
            if found is None or found.acks not in (1, -1):
                return None
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            header = RequestHeader(
                api_key=ApiKey.PRODUCE, api_version=version, correlation_id=correlation_id, client_id=None
            )
            exchange = several(frame, found, header)
            self.count += exchange is not None
            return exchange

        return shortcut


def random_request(rng: random.Random, topics: dict[str, TopicImage], version: int) -> ProduceRequest:
    topic = topics[rng.choice([*TOPICS])]
    partitions = rng.choice(([0], [1], [0], [0, 1], [1, 0], [0, 1, 1], [0, 2]))
    batches = {partition: rng.choice(BATCHES) for partition in partitions}
    return produce_request(topic, batches, version, acks=rng.choice((1, -1)))


@pytest.mark.parametrize("version", [3, 7, 8, 9, 13])
@pytest.mark.parametrize("policy", ["os", "group"])
async def test_every_way_says_and_stores_the_same(tmp_path: Path, version: int, policy: str) -> None:
    rng = random.Random(version)
    ways = [None, Served(), OnlySeveral()]
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(one(tmp_path / str(number), way, policy)) for number, way in enumerate(ways)
        ]
        topics = dict(brokers[0][0].controller.image.topics)
        for number in range(150):
            request = random_request(rng, topics, version)
            frame = encode_request(ApiKey.PRODUCE, version, number, "c", request)
            general, *short = [await answer_bytes(client, frame) for _, client in brokers]
            assert short == [general, general], f"request {number}: {request}"
        assert all(way.count > 100 for way in ways if way is not None)
        for name in TOPICS:
            for partition in (0, 1):
                stored = [
                    bytes((await fetch(client, topics[name], partition=partition)).records or b"")
                    for _, client in brokers
                ]
                assert stored[0] == stored[1] == stored[2]
