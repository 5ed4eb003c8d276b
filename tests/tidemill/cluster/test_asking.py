"""A real broker, asked how its cluster is"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tidemill.cluster.asking import ask_status
from tidemill.cluster.status import problems
from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import Address, RequestTimedOut
from tidemill.core.client.metadata import ClusterView
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from tidemill.services import Service


@pytest.mark.integration
async def test_a_node_by_itself_is_its_own_quorum(tidemill_broker: "Service") -> None:
    async with ClusterClient(tidemill_broker.facts["address"]) as client:
        await Admin(client).create_topics([NewTopic(name="asked", partitions=2, replication_factor=1, configs={})])
        found = await ask_status(client, SystemClock().now_ms())
        (broker,), (controller,) = found.brokers, found.controllers
        assert broker.address == tidemill_broker.facts["address"]
        assert found.leader_id == broker.node_id == controller.node_id
        assert (controller.behind, controller.leads, controller.voter) == (0, True, True)
        assert found.topics >= 1
        assert found.partitions >= 2
        assert found.cluster_id == (await client.metadata(())).cluster_id
        assert problems(found) == []


class Moving(ClusterClient):
    """A client of a cluster that gives every partition a replica at node 99, as long as its controller tells that."""

    tells = True

    async def metadata(self, topics: Iterable[str] | None) -> ClusterView:
        view = await super().metadata(topics)
        return replace(
            view,
            topics={
                name: replace(
                    topic,
                    partitions={
                        number: replace(each, replicas=(*each.replicas, 99))
                        for number, each in topic.partitions.items()
                    },
                )
                for name, topic in view.topics.items()
                if name == "moving"
            },
        )

    async def call(self, key: ApiKey, message: Any, expect: Any, *, cap: int | None = None) -> Any:
        if key is not ApiKey.LIST_PARTITION_REASSIGNMENTS:
            return await super().call(key, message, expect, cap=cap)
        if not self.tells:
            raise RequestTimedOut(Address("h", 1), "no answer")
        moves = OngoingPartitionReassignment(partition_index=0, replicas=(1, 99), adding_replicas=(99,))
        return ListPartitionReassignmentsResponse(
            topics=(OngoingTopicReassignment(name="moving", partitions=(moves,)),)
        )


@pytest.mark.integration
@pytest.mark.parametrize("tells", [True, False])
async def test_what_is_being_added_is_asked_for(tidemill_broker: "Service", tells: bool) -> None:
    async with Moving(tidemill_broker.facts["address"]) as client:
        client.tells = tells
        await Admin(client).create_topics([NewTopic(name="moving", partitions=1, replication_factor=1, configs={})])
        (found,) = (await ask_status(client, SystemClock().now_ms())).unwell
        await Admin(client).delete_topics(["moving"])
    assert (found.name, found.adding, found.missing) == ("moving-0", (99,) if tells else (), () if tells else (99,))


class WithoutController(ClusterClient):
    """A client of a broker that looks for an active controller for longer than anybody waits."""

    async def call(self, key: ApiKey, message: Any, expect: Any, *, cap: int | None = None) -> Any:
        if key is ApiKey.DESCRIBE_QUORUM:
            raise RequestTimedOut(Address("h", 1), "no answer to DESCRIBE_QUORUM within 10000 ms")
        return await super().call(key, message, expect, cap=cap)


@pytest.mark.integration
async def test_a_quorum_that_does_not_answer_keeps_nothing_else_from_being_told(tidemill_broker: "Service") -> None:
    async with WithoutController(tidemill_broker.facts["address"], call_timeout_ms=100) as client:
        found = await ask_status(client, SystemClock().now_ms())
    assert [each.address for each in found.brokers] == [tidemill_broker.facts["address"]]
    assert "the quorum does not answer (h:1: no answer to DESCRIBE_QUORUM within 10000 ms)" in problems(found)[-1]
