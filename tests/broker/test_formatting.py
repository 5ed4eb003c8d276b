"""Folders of first voters, and nodes that are started with them"""

import uuid
from pathlib import Path

import pytest

from tidemill.broker.config import BrokerConfig
from tidemill.broker.formatting import FIRST_VOTERS, format_folder, parse_initial_controllers
from tidemill.broker.log.identity import META, FolderRefused
from tidemill.broker.node import open_broker
from tidemill.broker.opening import StartRefused
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint
from tidemill.broker.quorum.store import FOLDER
from tidemill.core.config import ConfigError
from tidemill.core.ids import encode_id
from tidemill.free_ports import free_ports

ONE, TWO = encode_id(uuid.UUID(int=1)), encode_id(uuid.UUID(int=2))


def settings(folder: Path, **more: str) -> dict[str, str]:
    client, controller = free_ports(2)
    return {
        "node.id": "1",
        "log.dirs": str(folder),
        "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller},127.0.0.1:1",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


async def test_a_node_that_is_formatted_alone_leads_and_remembers_its_voters(tmp_path: Path) -> None:
    config = BrokerConfig.parse(settings(tmp_path))
    done = format_folder(config)
    assert done.voters.ids == (1,)
    for _ in range(2):
        async with open_broker(config) as broker:
            assert broker.cluster_id == done.cluster_id
            assert broker.controller.leads
            (voter,) = broker.controller.quorum().voters
            assert (voter.node_id, voter.directory_id) == (1, done.directory_id)
    with pytest.raises(StartRefused, match=r"belongs to a node already, see its meta\.properties"):
        format_folder(config)


def test_several_are_given_one_list_and_each_takes_its_own_id(tmp_path: Path) -> None:
    both = f"1@h:1:{ONE}, 2@h:2:{TWO}"
    for node in (1, 2):
        config = BrokerConfig.parse(settings(tmp_path / str(node), node_id=str(node), cluster_id=TWO))
        done = format_folder(config, both)
        assert (done.cluster_id, done.directory_id, done.voters.ids) == (TWO, uuid.UUID(int=node), (1, 2))
        assert f"directory.id={encode_id(uuid.UUID(int=node))}" in (tmp_path / str(node) / META).read_text()
    snapshots = {(tmp_path / str(node) / FOLDER / FIRST_VOTERS.name).read_bytes() for node in (1, 2)}
    assert len(snapshots) == 1


async def test_what_was_not_formatted_to_its_end_is_not_started_and_may_be_formatted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BrokerConfig.parse(settings(tmp_path, cluster_id=TWO))
    with monkeypatch.context() as patch:
        patch.setattr(
            "tidemill.broker.formatting.claim_folder", lambda *_: (_ for _ in ()).throw(FolderRefused("killed"))
        )
        with pytest.raises(FolderRefused, match="killed"):
            format_folder(config)
    with pytest.raises(StartRefused, match="was not formatted to its end: run 'tidemill broker format' again"):
        async with open_broker(config):
            pass
    format_folder(config)
    async with open_broker(config) as broker:
        assert broker.controller.leads


async def test_a_folder_of_several_is_not_started_by_itself(tmp_path: Path) -> None:
    config = BrokerConfig.parse(settings(tmp_path))
    format_folder(config)
    async with open_broker(config):
        pass
    with pytest.raises(StartRefused, match="is that of one of several nodes, and the settings name no other"):
        async with open_broker(BrokerConfig.parse({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://:0"})):
            pass


@pytest.mark.parametrize(
    ("more", "controllers", "sentence"),
    [
        ({"controller_quorum_bootstrap_servers": ""}, "", "those of a node by itself, which needs no formatting"),
        (
            {"controller_quorum_bootstrap_servers": "", "controller_quorum_voters": "1@h:1,2@h:2"},
            "",
            "configured on every node",
        ),
        ({"process_roles": "broker", "listeners": "PLAINTEXT://h:1"}, "", "no controller needs no formatting"),
        ({}, f"2@h:2:{TWO}", "does not name node 1"),
        ({}, f"1@h:1:{ONE},1@h:2:{TWO}", "1 is there twice"),
        ({}, "1@h:1", "expected ID@HOST:PORT:DIRECTORY, got '1@h:1'"),
        ({}, ",", "it names nobody"),
        ({}, f"1@h:1:{ONE},2@h:2:{ONE}", "nodes 1 and 2 have the same directory"),
        ({}, f"1@h:1:{encode_id(uuid.UUID(int=0))}", "node 1 has no directory"),
        ({}, f"-1@h:1:{ONE}", "expected ID@HOST:PORT:DIRECTORY, got '-1@h:1:"),
        ({}, f"1@h:1:{ONE},2@h:2:{TWO}", "would each make a cluster of its own: give all of them the same cluster.id"),
    ],
)
def test_what_cannot_be_formatted_is_told(
    tmp_path: Path, more: dict[str, str], controllers: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        format_folder(BrokerConfig.parse(settings(tmp_path, **more)), controllers)
    assert not list(tmp_path.iterdir())


def test_a_list_is_read_as_kafka_has_it() -> None:
    (voter,) = parse_initial_controllers(f"7@[::1]:9093:{ONE}", "CONTROLLER")
    assert voter == Voter(
        node_id=7, directory_id=uuid.UUID(int=1), endpoints=(VoterEndpoint("CONTROLLER", "::1", 9093),)
    )
