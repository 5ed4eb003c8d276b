"""A client of a real broker."""

import uuid
from collections.abc import AsyncIterator

import pytest

from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.cluster import ClusterClient
from tidemill.services import Service


@pytest.fixture
async def client(tidemill_broker: Service) -> AsyncIterator[ClusterClient]:
    """A client of the run's broker."""
    async with ClusterClient(tidemill_broker.facts["address"], call_timeout_ms=20_000) as opened:
        yield opened


@pytest.fixture
async def topic(client: ClusterClient) -> str:
    """A new topic of three partitions."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    assert await Admin(client).create_topics([NewTopic(name=name, partitions=3)]) == {name: None}
    return name
