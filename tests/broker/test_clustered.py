"""Three brokers in one process that are a cluster: everything they say to each other goes over sockets"""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.broker.broker_world import wire_client
from tests.broker.handlers.data_path import produce, records
from tidemill.broker.config import BrokerConfig
from tidemill.broker.log.identity import FolderRefused
from tidemill.broker.node import Broker, StartRefused, open_broker
from tidemill.broker.registration_file import read_registration
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidemill.core.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tidemill.core.wire.messages.init_producer_id import InitProducerIdRequest
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidemill.demo.pipeline import free_ports

pytestmark = pytest.mark.integration

CLUSTER = "dGlkZW1pbGwtY2x1c3Rlcg"


def settings_of(folder: Path, ports: list[int], node_id: int, **more: str) -> dict[str, str]:
    voters = ",".join(f"{node}@127.0.0.1:{ports[3 + node - 1]}" for node in (1, 2, 3))
    return {
        "node.id": str(node_id),
        "cluster.id": CLUSTER,
        "log.dirs": str(folder / f"node-{node_id}"),
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[node_id - 1]},CONTROLLER://127.0.0.1:{ports[3 + node_id - 1]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "broker.heartbeat.interval.ms": "200",
        "broker.session.timeout.ms": "1000",
        "initial.broker.registration.timeout.ms": "10000",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


class Cluster:
    """Brokers by node id, as far as they are up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = free_ports(6)
        self.brokers: dict[int, Broker] = {}
        self._stacks: dict[int, AsyncExitStack] = {}

    async def start(self, *nodes: int) -> None:
        async def one(node: int) -> None:
            stack = self._stacks[node] = AsyncExitStack()
            config = BrokerConfig.parse(settings_of(self.folder, self.ports, node))
            self.brokers[node] = await stack.enter_async_context(open_broker(config))

        async with asyncio.timeout(30):
            await asyncio.gather(*map(one, nodes))

    async def stop(self, *nodes: int) -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*(self._stacks.pop(node).aclose() for node in nodes))
        for node in nodes:
            del self.brokers[node]

    @property
    def follower(self) -> Broker:
        """One that does not decide."""
        return next(each for each in self.brokers.values() if not each.controller.leads)


@asynccontextmanager
async def cluster_of_three(folder: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(folder)
    await cluster.start(1, 2, 3)
    try:
        yield cluster
    finally:
        await cluster.stop(*cluster.brokers)


async def until(true: object, what: str) -> None:
    assert callable(true)
    try:
        async with asyncio.timeout(20):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


async def make(broker: Broker, name: str) -> None:
    wanted = CreatableTopic(name=name, num_partitions=3, replication_factor=3)
    async with wire_client(broker) as client:
        answer = await client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=(wanted,), timeout_ms=1000))
    assert answer.topics[0].error_code == 0, answer.topics[0]


async def test_any_broker_takes_what_is_for_the_controller(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        asked = cluster.follower
        await make(asked, "t")
        await until(
            lambda: all("t" in each.controller.image.topics for each in cluster.brokers.values()), "known to everybody"
        )
        assert {each.leader for each in asked.controller.image.topics["t"].partitions} == {1, 2, 3}
        async with wire_client(asked) as client:
            wanted = (MetadataRequestTopic(name="auto"),)
            metadata = await client.ask(
                ApiKey.METADATA, 12, MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
            )
            assert metadata.topics[0].error_code == ErrorCode.NONE
            assert len(metadata.topics[0].partitions[0].replica_nodes) == 3
            topics = (TopicData(topic_name="__cluster_metadata", partitions=(PartitionData(partition_index=0),)),)
            quorum = await client.ask(ApiKey.DESCRIBE_QUORUM, 2, DescribeQuorumRequest(topics=topics))
        state = quorum.topics[0].partitions[0]
        assert {each.replica_id for each in state.current_voters} == {1, 2, 3}
        assert all(each.log_end_offset > 0 for each in state.current_voters)


async def test_producer_ids_of_all_brokers_differ(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        taken = [await each.producer_ids.take() for each in cluster.brokers.values() for _ in range(3)]
        assert len(set(taken)) == len(taken)


async def test_while_nobody_hands_out_producer_ids_clients_are_asked_to_come_again(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        asked = cluster.follower
        await cluster.stop(*(node for node, each in cluster.brokers.items() if each is not asked))
        async with wire_client(asked) as client:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            answer = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, request)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_one_that_stops_in_order_hands_over_first_and_comes_back_in_sync(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        await make(cluster.brokers[1], "t")
        leader = next(node for node, each in cluster.brokers.items() if each.controller.leads)
        await cluster.stop(leader)
        other = next(iter(cluster.brokers.values()))

        def topic_of(broker: Broker) -> list[tuple[int, set[int]]]:
            return [(each.leader, set(each.isr)) for each in broker.controller.image.topics["t"].partitions]

        await until(lambda: all(led not in (leader, -1) for led, _ in topic_of(other)), "led by others")
        await until(lambda: any(each.controller.leads for each in cluster.brokers.values()), "another controller")
        past = read_registration(other.logs.directory)
        assert past is not None
        assert past.survives_a_crash
        await cluster.start(leader)
        await until(lambda: all(isr == {1, 2, 3} for _, isr in topic_of(other)), "in sync again")


async def test_acks_of_all_wait_for_the_others(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        await make(cluster.brokers[1], "t")
        await until(lambda: all("t" in each.followed.topics for each in cluster.brokers.values()), "followed by all")
        topic = cluster.brokers[1].controller.image.topics["t"]
        leader = cluster.brokers[topic.partitions[0].leader]
        async with wire_client(leader) as client:
            answer = await produce(client, topic, records(b"a", b"b"), acks=-1)
        assert answer.error_code == 0
        held = [each.replicas.get("t", 0) for each in cluster.brokers.values()]
        assert [each.log.held_offset for each in held if each is not None] == [2, 2, 2]


@pytest.mark.parametrize("of_the_leader", [True, False])
async def test_a_second_broker_with_the_same_id_is_told_what_to_do(tmp_path: Path, of_the_leader: bool) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        ports = [*cluster.ports]
        taken = next(node for node, each in cluster.brokers.items() if each.controller.leads is of_the_leader)
        ports[taken - 1], ports[3 + taken - 1] = free_ports(2)
        twin = settings_of(tmp_path, ports, taken, initial_broker_registration_timeout_ms="6000")
        twin["log.dirs"] = str(tmp_path / "twin")
        twin["controller.quorum.voters"] = settings_of(tmp_path, cluster.ports, taken)["controller.quorum.voters"]
        with pytest.raises(StartRefused, match="give each broker an id of its own"):
            async with open_broker(BrokerConfig.parse(twin)):
                pass
        place = cluster.brokers[taken].place
        assert place is not None
        assert not place.driven_out


async def test_without_a_majority_a_start_says_what_it_waits_for(tmp_path: Path) -> None:
    config = settings_of(tmp_path, free_ports(6), 1, initial_broker_registration_timeout_ms="1000")
    with pytest.raises(StartRefused, match="start a majority of the controllers"):
        async with open_broker(BrokerConfig.parse(config)):
            pass


async def test_a_new_folder_needs_to_know_its_cluster(tmp_path: Path) -> None:
    config = settings_of(tmp_path, free_ports(6), 1)
    del config["cluster.id"]
    with pytest.raises(StartRefused, match=r"give every node the same cluster\.id"):
        async with open_broker(BrokerConfig.parse(config)):
            pass


async def test_the_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async with open_broker(BrokerConfig.parse({"log.dirs": str(tmp_path / "node-1"), "listeners": "PLAINTEXT://:0"})):
        pass
    with pytest.raises(FolderRefused, match=f"not {CLUSTER}: use another data folder"):
        async with open_broker(BrokerConfig.parse(settings_of(tmp_path, free_ports(6), 1))):
            pass


async def test_a_port_of_the_controller_that_is_taken_is_named(tmp_path: Path) -> None:
    ports = free_ports(6)
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", ports[3])
    async with server:
        with pytest.raises(StartRefused, match=f"cannot listen on 127.0.0.1:{ports[3]}"):
            async with open_broker(BrokerConfig.parse(settings_of(tmp_path, ports, 1))):
                pass


async def test_a_disk_that_fails_ends_the_node_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        await make(cluster.brokers[1], "t")
        broken = cluster.follower

        def refuse(_data: bytes) -> None:
            raise OSError(errno.EIO, "Input/output error")

        assert broken.place is not None
        monkeypatch.setattr(broken.place.store, "append_fetched", refuse)
        await make(next(each for each in cluster.brokers.values() if each is not broken), "u")
        async with asyncio.timeout(20):
            await broken.stop.wait()
        assert broken.failure is not None
        await cluster.stop(broken.node_id)
        assert len(cluster.brokers) == 2
