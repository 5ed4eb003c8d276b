"""The files of a new cluster: what the broker makes of them"""

import pytest

from tidemill.broker.config import BrokerConfig
from tidemill.cluster.files import controllers_of, first_clash, new_cluster_id, plan, server_properties
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
