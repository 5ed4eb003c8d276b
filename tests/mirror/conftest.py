"""Two real clusters, and what the tests of the shells need around them."""

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import pytest

from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.config import parse_properties
from tidemill.core.records.batch import iter_batches
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, Record, decode_records
from tidemill.core.types import TopicPartition
from tidemill.mirror.config import MirrorConfig, parse_mirror_config
from tidemill.testing.plugin import BrokerFactory


@dataclass
class Pair:
    """Two clusters by address, a client for each, and a fresh topic name."""

    a: str
    b: str
    source: ClusterClient
    target: ClusterClient
    topic: str

    @property
    def remote(self) -> str:
        """The topic's name on the target."""
        return f"A.{self.topic}"

    def text(self, more: str = "") -> str:
        """An mm2.properties for this topic alone."""
        return (
            f"clusters = A, B\nA.bootstrap.servers = {self.a}\nB.bootstrap.servers = {self.b}\n"
            f"A->B.enabled = true\ntopics = {self.topic}\nheartbeats.replication.enabled = false\n"
            f"emit.heartbeats.enabled = false\n{more}"
        )

    def config(self, more: str = "") -> MirrorConfig:
        """The same, read."""
        return parse_mirror_config(parse_properties(self.text(more)))

    async def create(self, partitions: int = 2, **configs: str) -> None:
        """Create the topic on the source."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name=self.topic, partitions=partitions, configs=settings)
        assert await Admin(self.source).create_topics([topic]) == {self.topic: None}

    async def write(self, partition: int, values: Sequence[bytes], codec: str = "none") -> int:
        """Append one batch on the source."""
        batch = build_batch([NewRecord(timestamp=5, key=b"k", value=value) for value in values], codec=codec)
        return await self.source.append(TopicPartition(self.topic, partition), batch)


async def read_records(client: ClusterClient, topic: str, partition: int = 0) -> list[Record]:
    """Every record of a partition."""
    return [
        record
        async for answer in client.read(TopicPartition(topic, partition))
        for view in iter_batches(answer.data)
        for record in decode_records(view)
    ]


@pytest.fixture(scope="session")
def addresses(tidemill_broker_factory: BrokerFactory) -> tuple[str, str]:
    """Bootstrap addresses of two clusters."""
    return tidemill_broker_factory().facts["address"], tidemill_broker_factory().facts["address"]


@pytest.fixture
async def pair(addresses: tuple[str, str]) -> AsyncIterator[Pair]:
    """The clusters, with clients and a topic name of the test's own."""
    a, b = addresses
    async with ClusterClient(a, call_timeout_ms=20_000) as source, ClusterClient(b, call_timeout_ms=20_000) as target:
        yield Pair(a, b, source, target, f"t{uuid.uuid4().hex[:8]}")


@pytest.fixture
async def new_pair(tidemill_broker_factory: BrokerFactory) -> AsyncIterator[Pair]:
    """Two clusters that no mirror has ever told anything of."""
    a, b = (tidemill_broker_factory().facts["address"] for _ in range(2))
    async with ClusterClient(a, call_timeout_ms=20_000) as source, ClusterClient(b, call_timeout_ms=20_000) as target:
        yield Pair(a, b, source, target, f"t{uuid.uuid4().hex[:8]}")


@pytest.fixture
def records_of() -> Callable[..., object]:
    """`await records_of(client, topic, partition)`."""
    return read_records
