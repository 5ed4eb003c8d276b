"""AddRaftVoter (80), RemoveRaftVoter (81): other voters (KIP-853)

versions: AddRaftVoter 0-1 (1: may be answered before the change is committed), RemoveRaftVoter 0-0

Any broker takes them and the active controller carries them out. Not served to clients: UpdateRaftVoter (82), with
which a voter itself tells its leader of a new address; it goes from controller to controller. The refusals have Kafka's
codes: DUPLICATE_VOTER, VOTER_NOT_FOUND, INCONSISTENT_CLUSTER_ID; REQUEST_TIMED_OUT while another change is under way
and for a voter that does not catch up; INVALID_REQUEST for the last voter, and UNSUPPORTED_VERSION where the voters are
configured on every node.
"""

from typing import Any

from tidemill.broker.authorization import on_the_cluster
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.operations import Operation
from tidemill.core.wire.api import ApiKey


async def handle(broker: BrokerServices, request: Any, ctx: RequestContext) -> Any:
    """What the quorum says to it."""
    return await broker.controller.change_voters(request)


ROUTES = (
    Route(
        key=ApiKey.ADD_RAFT_VOTER,
        handle=handle,
        min_version=0,
        max_version=1,
        needs=(on_the_cluster(Operation.ALTER),),
    ),
    Route(
        key=ApiKey.REMOVE_RAFT_VOTER,
        handle=handle,
        min_version=0,
        max_version=0,
        needs=(on_the_cluster(Operation.ALTER),),
    ),
)
