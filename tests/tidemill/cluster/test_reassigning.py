"""A real broker asked about its replicas, and told to move some"""

from typing import TYPE_CHECKING

import pytest

from tidemill.cluster.moving import LEADER_LIST, RATE_KEYS, Throttles
from tidemill.cluster.reassigning import Reassigner, moved_to
from tidemill.core.client.admin import Admin, NewTopic
from tidemill.core.client.balance import Move, Place
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.errors import KafkaError

if TYPE_CHECKING:
    from tidemill.services import Service

TOPIC = "reassigned"
PLACE = Place(TOPIC, 0)


@pytest.mark.integration
async def test_one_node_has_nowhere_to_move_to_and_says_so(tidemill_broker: "Service") -> None:
    async with ClusterClient(tidemill_broker.facts["address"]) as client:
        await Admin(client).create_topics([NewTopic(name=TOPIC, partitions=2, replication_factor=1)])
        reassigner = Reassigner(client)
        found = await reassigner.situation()
        (node,) = reassigner.running
        assert found.holdings.racks == {node: None}
        assert found.holdings.replicas[PLACE] == (node,)
        assert found.sizes[PLACE] >= 0
        assert found.free[node] > 0
        assert found.ongoing == ()
        assert await reassigner.sizes_at([node + 1], None) == ({}, {}), "nobody else speaks for one that is away"

        refused = await reassigner.move({PLACE: (node, node + 1), Place(TOPIC, 1): (node,)})
        assert list(refused) == [PLACE]
        assert str(node + 1) in refused[PLACE]
        assert await reassigner.move({PLACE: None}) == {}, "nothing was on the move"
        assert await reassigner.elect_preferred([PLACE]) == {}
        move = Move(topic=TOPIC, partition=0, before=(node,), after=(node,))
        assert await moved_to(client, [move], 1) == []
        with pytest.raises(KafkaError, match=f"broker {node} is running"):
            await reassigner.unregister(node)


@pytest.mark.integration
async def test_what_is_set_of_a_throttle_is_found_and_taken_away(tidemill_broker: "Service") -> None:
    async with ClusterClient(tidemill_broker.facts["address"]) as client:
        await Admin(client).create_topics([NewTopic(name=TOPIC, partitions=2, replication_factor=1)])
        reassigner = Reassigner(client)
        (node,) = await reassigner.who_runs()
        rates = dict.fromkeys(RATE_KEYS, "1000")
        await reassigner.set_rates(node, rates)
        await reassigner.set_lists({TOPIC: {LEADER_LIST: f"0:{node}"}, "gone": {LEADER_LIST: "0:1"}})
        assert await reassigner.throttles() == Throttles(rates={node: rates}, lists={TOPIC: {LEADER_LIST: f"0:{node}"}})
        await reassigner.set_rates(node, dict.fromkeys(RATE_KEYS))
        await reassigner.set_lists({TOPIC: {LEADER_LIST: None}})
        assert await reassigner.throttles() == Throttles()
