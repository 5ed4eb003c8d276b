"""Voters, asked of a real cluster in the test's own event loop"""

import uuid
from pathlib import Path
from typing import Any

import pytest

from tidemill.broker.config import BrokerConfig
from tidemill.broker.formatting import format_folder
from tidemill.broker.node import open_broker
from tidemill.cluster.asking import ask_status
from tidemill.cluster.voters import AnswerLost, Joining, VoterUnknown, add_voter, remove_voter
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import Address, ConnectionFailed
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import RequestTimedOut, UnsupportedVersion
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.remove_raft_voter import RemoveRaftVoterResponse
from tidemill.free_ports import free_port, free_ports

pytestmark = pytest.mark.integration


async def test_a_controller_that_follows_becomes_a_voter_and_goes(tmp_path: Path) -> None:
    client_port, one, two = free_ports(3)
    settings = {
        "cluster.id": "Z3Jvd2luZy1jbHVzdGVyLQ",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{one},127.0.0.1:{two}",
    }
    first = {"log.dirs": f"{tmp_path}/1", "listeners": f"P://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{one}"}
    second = {"log.dirs": f"{tmp_path}/2", "listeners": f"CONTROLLER://127.0.0.1:{two}", "process.roles": "controller"}
    names = {"listener.security.protocol.map": "P:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    config = BrokerConfig.parse({**settings, **names, **first, "node.id": "1"})
    format_folder(config)
    joining = Joining(node_id=2, host="127.0.0.1", port=two, listener="controller")
    async with open_broker(config) as broker, ClusterClient(f"127.0.0.1:{client_port}") as client:
        with pytest.raises(VoterUnknown, match=r"node 2 does not follow .*: start it first, .* takes none"):
            await add_voter(client, joining, timeout_ms=1000)
        async with open_broker(BrokerConfig.parse({**settings, **names, **second, "node.id": "2"})):
            stranger = Joining(node_id=2, host="127.0.0.1", port=two, directory_id=uuid.uuid4())
            with pytest.raises(RequestTimedOut, match="does not fetch from the leader"):
                await add_voter(client, stranger, timeout_ms=300)
            assert await add_voter(client, joining, timeout_ms=10_000) == (1, 2)
            with pytest.raises(VoterUnknown, match="node 2 votes already; the voters are 1, 2"):
                await add_voter(client, joining, timeout_ms=1000)
            found = await ask_status(client, broker.clock.now_ms())
            assert [(each.node_id, each.voter, each.address) for each in found.controllers] == [
                (1, True, f"127.0.0.1:{one}"),
                (2, True, f"127.0.0.1:{two}"),
            ]
            assert await remove_voter(client, 2) == (1,)
            with pytest.raises(VoterUnknown, match="node 2 does not vote; the voters are 1"):
                await remove_voter(client, 2)


async def test_a_node_by_itself_has_no_voters_to_change(tmp_path: Path) -> None:
    port = free_port()
    config = BrokerConfig.parse({"log.dirs": str(tmp_path), "listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    async with open_broker(config), ClusterClient(f"127.0.0.1:{port}") as client:
        with pytest.raises(UnsupportedVersion, match="is a cluster by itself and gets no voters"):
            await remove_voter(client, 1)


class Deaf(ClusterClient):
    """A client whose broker dies behind the request, or whose controller leads no more."""

    led = True

    async def call(self, key: ApiKey, message: Any, expect: Any, *, cap: int | None = None) -> Any:
        if key is not ApiKey.REMOVE_RAFT_VOTER:
            return await super().call(key, message, expect, cap=cap)
        if self.led:
            raise ConnectionFailed(Address("h", 1), "peer closed the connection")
        return RemoveRaftVoterResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message="no node is")


async def test_a_change_whose_answer_is_lost_may_be_done(tmp_path: Path) -> None:
    port = free_port()
    config = BrokerConfig.parse({"log.dirs": str(tmp_path), "listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    async with open_broker(config), Deaf(f"127.0.0.1:{port}") as client:
        with pytest.raises(AnswerLost, match=r"h:1 has not said what came of it .*: it may be done"):
            await remove_voter(client, 1)
        client.led = False
        with pytest.raises(AnswerLost, match="another controller is elected: the one before may have done it"):
            await remove_voter(client, 1)
