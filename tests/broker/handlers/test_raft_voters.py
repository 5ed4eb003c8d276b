"""Other voters, asked of a node that has none beside itself; among several it is told in test_elected."""

import uuid
from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client
from tidemill.broker.handlers.raft_voters import ROUTES
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from tidemill.core.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

WHERE = (Listener(name="CONTROLLER", host="h", port=9093),)


@pytest.mark.parametrize(
    ("key", "version"), [(each.key, v) for each in ROUTES for v in range(each.min_version, each.max_version + 1)]
)
async def test_a_node_by_itself_says_that_it_is_one(tmp_path: Path, key: ApiKey, version: int) -> None:
    request = {
        ApiKey.ADD_RAFT_VOTER: AddRaftVoterRequest(
            cluster_id=None, timeout_ms=1_000, voter_id=2, voter_directory_id=uuid.UUID(int=2), listeners=WHERE
        ),
        ApiKey.REMOVE_RAFT_VOTER: RemoveRaftVoterRequest(
            cluster_id=None, voter_id=1, voter_directory_id=uuid.UUID(int=1)
        ),
    }[key]
    async with broker_and_client(tmp_path) as (_, client):
        answer = await client.ask(key, version, request)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "node 1 is a cluster by itself" in answer.error_message
