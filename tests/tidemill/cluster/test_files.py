"""The files of a new cluster: what the broker makes of them"""

import pytest

from tidemill.broker.config import BrokerConfig
from tidemill.broker.formatting import parse_initial_controllers
from tidemill.cluster.files import (
    controllers_of,
    first_clash,
    initial_controllers,
    new_cluster_id,
    plan,
    server_properties,
)
from tidemill.core.config import parse_config_text
from tidemill.core.ids import decode_id


def test_an_id_is_one_that_a_folder_takes_and_new_each_time() -> None:
    ids = {new_cluster_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(decode_id(each) for each in ids)
    assert not any(each.startswith("-") for each in ids), "a shell would take it for an option"


@pytest.mark.parametrize(("nodes", "controllers"), [(3, 3), (4, 3), (5, 5), (6, 5), (30, 5)])
def test_the_controllers_are_odd_and_few(nodes: int, controllers: int) -> None:
    assert controllers_of(nodes) == controllers


def test_the_broker_takes_every_file_and_all_agree() -> None:
    nodes = plan(["one", "two", "two", "three"], port=9092, controller_port=9093, log_dirs="/data/")
    cluster_id = new_cluster_id()
    parsed = [
        BrokerConfig.parse(parse_config_text(server_properties(node, nodes, cluster_id), "node.properties"))
        for node in nodes
    ]
    assert [each.node_id for each in parsed] == [1, 2, 3, 4]
    assert [each.data_dir for each in parsed] == [f"/data/node-{node}" for node in (1, 2, 3, 4)]
    assert [(each.listen[0].host, each.listen[0].port) for each in parsed] == [
        ("one", 9092), ("two", 9092), ("two", 9094), ("three", 9092)
    ]  # fmt: skip
    clusters = [each.cluster for each in parsed]
    assert all(each is not None and each.cluster_id == cluster_id for each in clusters)
    assert [each is not None and each.controller is not None for each in clusters] == [True, True, True, False]
    voters = {str(sorted((v.node_id, v.endpoints[0]) for v in each.voters)) for each in clusters if each is not None}
    assert len(voters) == 1


def test_two_listeners_on_one_address_are_seen() -> None:
    assert first_clash(plan(["a", "a", "b"], port=9092, controller_port=9093, log_dirs="d")) == ""
    assert first_clash(plan(["a", "a", "b"], port=9092, controller_port=9094, log_dirs="d")) == "a:9094"
    assert first_clash(plan(["a", "b", "c"], port=9092, controller_port=9092, log_dirs="d")) == "a:9092"


def test_controllers_may_have_nodes_of_their_own() -> None:
    nodes = plan(["b", "b"], port=9092, controller_port=9093, log_dirs="/d", controllers=["c", "d", "e"])
    assert first_clash(nodes) == ""
    parsed = [BrokerConfig.parse(parse_config_text(server_properties(node, nodes, "x"), "p")) for node in nodes]
    assert [len(each.listen) for each in parsed] == [1, 1, 0, 0, 0]
    clusters = [each.cluster for each in parsed if each.cluster is not None]
    assert [each.controller is not None for each in clusters] == [False, False, True, True, True]
    assert {each.voters.ids for each in clusters} == {(3, 4, 5)}


def test_the_folders_of_a_dynamic_quorum_are_formatted_with_one_list() -> None:
    nodes = plan(["one", "two", "three", "four"], port=9092, controller_port=9093, log_dirs="/d")
    texts = [server_properties(node, nodes, "x", dynamic=True) for node in nodes]
    clusters = [BrokerConfig.parse(parse_config_text(text, "p")).cluster for text in texts]
    assert {each.bootstrap for each in clusters if each is not None} == {
        (("one", 9093), ("two", 9093), ("three", 9093))
    }
    voters = parse_initial_controllers(initial_controllers([node for node in nodes if node.controls]), "CONTROLLER")
    assert [(each.node_id, each.endpoints[0].host) for each in voters] == [(1, "one"), (2, "two"), (3, "three")]
    assert len({each.directory_id for each in voters}) == 3
