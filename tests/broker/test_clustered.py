"""Three brokers in one process that are a cluster: everything they say to each other goes over sockets"""

import asyncio
import errno
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker_world import wire_client
from tests.broker.handlers.data_path import produce, records
from tests.certificates import Authority
from tidemill.broker.config import BrokerConfig
from tidemill.broker.formatting import format_folder
from tidemill.broker.log.identity import FolderRefused
from tidemill.broker.node import Broker, StartRefused, open_broker
from tidemill.broker.quorum.store import MetadataStore
from tidemill.broker.registration_file import PastRegistration, read_registration, write_registration
from tidemill.core.error_code import ErrorCode
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.disk import Directory
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.add_raft_voter import AddRaftVoterRequest
from tidemill.core.wire.messages.add_raft_voter import Listener as AddedListener
from tidemill.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidemill.core.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidemill.core.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tidemill.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidemill.core.wire.messages.init_producer_id import InitProducerIdRequest
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidemill.core.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from tidemill.free_ports import free_port, free_ports

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

    def __init__(self, folder: Path, of_the_first: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.of_the_first = of_the_first or {}  # what node 1 is set to beside what all are
        self.ports = free_ports(6)
        self.brokers: dict[int, Broker] = {}
        self._stacks: dict[int, AsyncExitStack] = {}

    async def start(self, *nodes: int) -> None:
        async def one(node: int) -> None:
            stack = self._stacks[node] = AsyncExitStack()
            more = self.of_the_first if node == 1 else {}
            config = BrokerConfig.parse(settings_of(self.folder, self.ports, node, **more))
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
async def cluster_of_three(folder: Path, **of_the_first: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(folder, of_the_first)
    await cluster.start(1, 2, 3)
    try:
        yield cluster
    finally:
        await cluster.stop(*cluster.brokers)


class Mixed:
    """Nodes of one cluster with roles of their own, by id, as far as they are up.

    `common` are settings that all have, `own` those of one.
    """

    def __init__(self, folder: Path, **common: str) -> None:
        self.folder = folder
        self.common = {key.replace("_", "."): value for key, value in common.items()}
        self.brokers: dict[int, Broker] = {}
        self.own: dict[int, dict[str, str]] = {}
        self.ports: dict[int, int] = {}
        self._stacks: dict[int, AsyncExitStack] = {}

    def settings(self, node_id: int, roles: str) -> dict[str, str]:
        """Those of a node; it keeps the port of its controller."""
        listeners = [f"PLAINTEXT://127.0.0.1:{free_port()}"] if "broker" in roles else []
        if "controller" in roles:
            port = self.ports.setdefault(node_id, free_port())
            listeners.append(f"CONTROLLER://127.0.0.1:{port}")
        return {
            "node.id": str(node_id),
            "process.roles": roles,
            "cluster.id": CLUSTER,
            "log.dirs": str(self.folder / f"node-{node_id}"),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "broker.heartbeat.interval.ms": "200",
            "broker.session.timeout.ms": "1000",
            **self.common,
            **self.own.get(node_id, {}),
        }

    async def start(self, **roles: str) -> None:
        async def one(node_id: int, config: BrokerConfig) -> None:
            stack = self._stacks[node_id] = AsyncExitStack()
            self.brokers[node_id] = await stack.enter_async_context(open_broker(config))

        async with asyncio.timeout(30):
            nodes = {int(name[1:]): role for name, role in roles.items()}
            configs = {each: BrokerConfig.parse(self.settings(each, role)) for each, role in nodes.items()}
            await asyncio.gather(*(one(each, config) for each, config in configs.items()))

    async def stop(self, *nodes: int) -> None:
        """These, or else all of them: brokers first, who need a controller to leave in order."""
        brokers = [node for node, each in self.brokers.items() if each.config.listen]
        for some in [nodes] if nodes else [brokers, [*self._stacks.keys() - {*brokers}]]:
            async with asyncio.timeout(30):
                await asyncio.gather(*(self._stacks.pop(node).aclose() for node in some))
        for node in nodes:
            del self.brokers[node]

    @property
    def leader(self) -> int:
        """Who decides; -1 is nobody."""
        return next((node for node, each in self.brokers.items() if each.controller.leads), -1)

    async def change(self, asked: int, request: Any, version: int = 0) -> Any:
        """The answer of a broker that is asked for other voters."""
        key = ApiKey.ADD_RAFT_VOTER if isinstance(request, AddRaftVoterRequest) else ApiKey.REMOVE_RAFT_VOTER
        async with wire_client(self.brokers[asked]) as client:
            return await client.ask(key, version, request)

    def adding(self, node_id: int, **named: Any) -> AddRaftVoterRequest:
        """This node as a voter."""
        where = AddedListener(name="CONTROLLER", host="127.0.0.1", port=self.ports[node_id])
        values: dict[str, Any] = {
            "cluster_id": CLUSTER,
            "timeout_ms": 10_000,
            "voter_id": node_id,
            "voter_directory_id": self.brokers[node_id].logs.identity.directory_id,
            "listeners": (where,),
        }
        return AddRaftVoterRequest(**{**values, **named})

    def removing(self, node_id: int) -> RemoveRaftVoterRequest:
        """This voter, gone."""
        directory_id = self.brokers[node_id].logs.identity.directory_id
        return RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=node_id, voter_directory_id=directory_id)

    def voters(self, node_id: int) -> tuple[int, ...]:
        """As this node knows them."""
        return tuple(each.node_id for each in self.brokers[node_id].controller.quorum().voters)


@asynccontextmanager
async def growing(folder: Path) -> AsyncIterator[Mixed]:
    """One node that was formatted alone, and leads; others look for it."""
    cluster = Mixed(folder)
    cluster.ports = dict(enumerate(free_ports(5), 1))
    servers = ",".join(f"127.0.0.1:{port}" for port in cluster.ports.values())
    cluster.common |= {"controller.quorum.bootstrap.servers": servers, "default.replication.factor": "1"}
    format_folder(BrokerConfig.parse(cluster.settings(1, "broker,controller")))
    await cluster.start(n1="broker,controller")
    try:
        yield cluster
    finally:
        await cluster.stop()


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


def limit_of(broker: Broker) -> int:
    return broker.servers[0].limits.max_connections


async def test_settings_of_one_broker_are_changed_by_way_of_another_and_hold_there_only(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:

        async def alter(at: int, name: str, **settings: str) -> int:
            changes = tuple(
                AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
                for key, value in settings.items()
            )
            resource = AlterConfigsResource(resource_type=4, resource_name=name, configs=changes)
            request = IncrementalAlterConfigsRequest(resources=(resource,))
            async with wire_client(cluster.brokers[at]) as client:
                answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
            return int(answer.responses[0].error_code)

        async def described(at: int, name: str, key: str = "max.connections") -> tuple[int, str]:
            resource = DescribeConfigsResource(resource_type=4, resource_name=name, configuration_keys=(key,))
            async with wire_client(cluster.brokers[at]) as client:
                answer = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=(resource,)))
            (found,) = answer.results
            return int(found.error_code), found.configs[0].value if found.configs else found.error_message

        assert await described(2, "2", "default.replication.factor") == (0, "3")
        assert await alter(1, "2", max_connections="222") == ErrorCode.NONE
        assert await alter(3, "", max_connections="333") == ErrorCode.NONE
        assert await alter(1, "2", num_partitions="7") == ErrorCode.INVALID_REQUEST
        assert await alter(1, "9", max_connections="7") == ErrorCode.INVALID_REQUEST
        await until(lambda: [limit_of(cluster.brokers[each]) for each in (1, 2, 3)] == [333, 222, 333], "both in force")
        assert await described(2, "2") == (ErrorCode.NONE, "222")
        code, message = await described(1, "2")
        assert code == ErrorCode.INVALID_REQUEST
        assert message == "this is broker 1: ask broker '2' for its own settings"
        await cluster.stop(2)
        await cluster.start(2)
        assert limit_of(cluster.brokers[2]) == 222


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
        everybody = [each.following for each in cluster.brokers.values()]
        await until(lambda: all("t" in each.image.topics for each in everybody), "followed by all")
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


@pytest.mark.parametrize("named", [True, False])
async def test_a_controller_without_a_broker_watches_brokers_on_the_terms_that_it_names(
    tmp_path: Path, named: bool
) -> None:
    authority = Authority(tmp_path / "authority")
    broker_port = free_port()
    terms = {
        "listener.name.brokers.ssl.keystore.location": str(authority.signed("/CN=node").both),
        "listener.name.brokers.ssl.truststore.location": str(authority.certificate),
        "listener.name.brokers.ssl.client.auth": "required",
        "inter.broker.listener.name": "BROKERS",
    }
    cluster = Mixed(tmp_path)
    cluster.ports = {1: free_port()}
    cluster.common["controller.quorum.voters"] = f"1@127.0.0.1:{cluster.ports[1]}"
    cluster.common["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,BROKERS:SSL"
    cluster.own = {1: terms if named else {}, 2: {**terms, "listeners": f"BROKERS://127.0.0.1:{broker_port}"}}
    try:
        await cluster.start(n1="controller", n2="broker")
        (server,) = cluster.brokers[2].servers
        if named:
            await until(lambda: len(server.connections) == 1, "watched")
        else:
            await asyncio.sleep(0.5)
        assert (len(server.connections), server.handshakes_failed) == (int(named), 0)
    finally:
        await cluster.stop()


async def test_a_node_of_another_cluster_says_so_and_follows_nobody(tmp_path: Path) -> None:
    cluster = Mixed(tmp_path)
    cluster.ports = {1: free_port()}
    cluster.common["controller.quorum.voters"] = f"1@127.0.0.1:{cluster.ports[1]}"
    other = {"cluster.id": "YW5vdGhlci1jbHVzdGVyIQ", "initial.broker.registration.timeout.ms": "1000"}
    cluster.own = {2: other}
    try:
        await cluster.start(n1="controller")
        with pytest.raises(StartRefused, match=f"a node of another cluster than {other['cluster.id']} answers there"):
            await cluster.start(n2="broker")
    finally:
        await cluster.stop(1)


async def test_controllers_and_brokers_may_be_nodes_of_their_own(tmp_path: Path) -> None:
    cluster = Mixed(tmp_path)
    cluster.ports = dict(enumerate(free_ports(3), 1))
    named = ",".join(f"{node}@127.0.0.1:{port}" for node, port in cluster.ports.items())
    cluster.common["controller.quorum.voters"] = named
    try:
        await cluster.start(n1="controller", n2="controller", n3="controller", n4="broker", n5="broker")
        assert sorted(cluster.brokers[4].controller.image.brokers) == [4, 5]
        assert cluster.leader in (1, 2, 3)
        wanted = CreatableTopic(name="t", num_partitions=4, replication_factor=2)
        async with wire_client(cluster.brokers[4]) as client:
            request = CreateTopicsRequest(topics=(wanted,), timeout_ms=1000)
            assert (await client.ask(ApiKey.CREATE_TOPICS, 7, request)).topics[0].error_code == 0
            topics = (TopicData(topic_name="__cluster_metadata", partitions=(PartitionData(partition_index=0),)),)
            quorum = await client.ask(ApiKey.DESCRIBE_QUORUM, 2, DescribeQuorumRequest(topics=topics))
        state = quorum.topics[0].partitions[0]
        assert {each.replica_id for each in state.current_voters} == {1, 2, 3}
        assert {each.replica_id for each in state.observers} == {4, 5}
        told = {node.node_id: [(each.name, each.port) for each in node.listeners] for node in quorum.nodes}
        assert told[1] == [("CONTROLLER", cluster.ports[1])]
        gone = cluster.leader
        await cluster.stop(gone)
        await until(lambda: cluster.leader not in (-1, gone), "another controller")
        await until(
            lambda: all("t" in each.controller.image.topics for each in cluster.brokers.values()), "known to everybody"
        )
        await cluster.start(**{f"n{gone}": "controller"})
        await until(lambda: "t" in cluster.brokers[gone].controller.image.topics, "known again")
    finally:
        await cluster.stop()


async def test_a_cluster_grows_from_one_node_and_moves_to_others(tmp_path: Path) -> None:
    async with growing(tmp_path) as cluster:
        await cluster.start(n2="broker,controller", n3="controller")
        assert cluster.voters(1) == (1,)
        quorum = cluster.brokers[1].controller.quorum  # it hears of a controller that is no voter when that one asks it
        await until(lambda: {each.node_id for each in quorum().observers} == {2, 3}, "both are heard of")
        for node in (2, 3):  # asked of one that does not decide
            assert (await cluster.change(2, cluster.adding(node), 1)).error_code == 0
        await until(lambda: {cluster.voters(each) for each in (1, 2, 3)} == {(1, 2, 3)}, "known to everybody")
        again = await cluster.change(2, cluster.adding(3))
        assert again.error_code == ErrorCode.DUPLICATE_VOTER
        assert (await cluster.change(2, cluster.removing(1))).error_code == 0
        await until(lambda: cluster.leader in (2, 3), "another leader")
        assert sorted(cluster.brokers[2].controller.image.brokers) == [1, 2]
        await make_one(cluster.brokers[1], "after")
        await cluster.stop(1)
        await until(lambda: "after" in cluster.brokers[3].controller.image.topics, "decided without the first")
        await cluster.start(n1="broker")  # which is a broker from now on
        await until(lambda: cluster.voters(1) == (2, 3), "a broker only")
        assert (await cluster.change(1, cluster.removing(3))).error_code == 0
        await until(lambda: cluster.leader == 2, "the last one leads")
        last = await cluster.change(1, cluster.removing(2))
        assert last.error_code == ErrorCode.INVALID_REQUEST
        assert "only voter" in last.error_message


async def make_one(broker: Broker, name: str) -> None:
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    async with wire_client(broker) as client:
        answer = await client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=(wanted,), timeout_ms=1000))
    assert answer.topics[0].error_code == 0, answer.topics[0]


async def test_whoever_does_not_answer_as_that_controller_is_no_voter(tmp_path: Path) -> None:
    async with growing(tmp_path) as cluster:
        await cluster.start(n2="controller", n4="broker")
        there = AddedListener(name="C", host="127.0.0.1", port=cluster.ports[2])
        answer = await cluster.change(4, cluster.adding(2, listeners=(there,)))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message is not None
        assert "at listener C, and controllers listen for one another at CONTROLLER" in answer.error_message
        nowhere = AddedListener(name="CONTROLLER", host="127.0.0.1", port=1)
        wrong = cluster.adding(2, timeout_ms=700, listeners=(nowhere,))
        answer = await cluster.change(1, wrong)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "node 2 with this directory does not answer as a controller at 127.0.0.1:1" in answer.error_message
        answer = await cluster.change(4, cluster.adding(2, timeout_ms=700, voter_directory_id=uuid.uuid4()))
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "does not fetch from the leader" in answer.error_message
        assert cluster.voters(1) == (1,)
        assert (await cluster.change(4, cluster.adding(2))).error_code == 0


async def test_voters_that_are_configured_are_not_changed(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        me = cluster.brokers[1].logs.identity.directory_id
        request = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=1, voter_directory_id=me)
        async with wire_client(cluster.follower) as client:
            answer = await client.ask(ApiKey.REMOVE_RAFT_VOTER, 0, request)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "controller.quorum.voters" in answer.error_message and "stay as they are" in answer.error_message


async def test_without_a_majority_a_start_says_what_it_waits_for(tmp_path: Path) -> None:
    config = settings_of(tmp_path, free_ports(6), 1, initial_broker_registration_timeout_ms="1000")
    with pytest.raises(StartRefused, match="start a majority of the controllers"):
        async with open_broker(BrokerConfig.parse(config)):
            pass


async def test_a_start_in_a_cluster_that_nobody_has_begun_ends_with_how_one_begins(tmp_path: Path) -> None:
    config = settings_of(tmp_path, ports := free_ports(6), 1, initial_broker_registration_timeout_ms="1000")
    del config["controller.quorum.voters"]
    config["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{ports[3]},127.0.0.1:{ports[4]}"
    with pytest.raises(StartRefused, match=f"broker format --standalone.*127.0.0.1:{ports[4]}: not reachable"):
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


async def test_a_disk_that_fails_during_a_start_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = MetadataStore.append_fetched
    async with cluster_of_three(tmp_path) as cluster:
        node = cluster.follower.node_id
        await cluster.stop(node)
        sound = [each.place.store for each in cluster.brokers.values() if each.place is not None]

        def append_if_sound(store: MetadataStore, data: bytes) -> None:
            if store not in sound:
                raise OSError(errno.EIO, "Input/output error")
            append(store, data)

        monkeypatch.setattr(MetadataStore, "append_fetched", append_if_sound)
        with pytest.raises(StartRefused, match="cannot be used"):
            async with asyncio.timeout(20), open_broker(BrokerConfig.parse(settings_of(tmp_path, cluster.ports, node))):
                pass


async def test_a_disk_that_fails_ends_a_start_that_waits_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it leads the other controllers it would go on doing so, and refuse whatever they ask."""
    made: list[Broker] = []
    make_broker = Broker.__init__

    def noted(broker: Broker, **parts: Any) -> None:
        make_broker(broker, **parts)
        made.append(broker)

    monkeypatch.setattr(Broker, "__init__", noted)
    config = BrokerConfig.parse(settings_of(tmp_path, free_ports(6), 1))

    async def start() -> None:
        async with open_broker(config):
            pass

    async with asyncio.timeout(20):
        starting = asyncio.create_task(start())
        await until(lambda: made, "nothing is made")
        made[0].disk_failed(OSError(errno.EIO, "Input/output error"))
        with pytest.raises(StartRefused, match=r"the data folder .* failed: .*Input/output error"):
            await starting


async def test_a_start_that_died_between_its_registration_and_its_file_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(data: Directory, registration: PastRegistration) -> None:
        if registration.registering is None:
            raise OSError(errno.EIO, "Input/output error")
        write_registration(data, registration)

    async with cluster_of_three(tmp_path) as cluster:
        node = cluster.follower.node_id
        await cluster.stop(node)
        with monkeypatch.context() as patch:
            patch.setattr("tidemill.broker.clustered.write_registration", refuse)
            with pytest.raises(FolderRefused):
                async with open_broker(BrokerConfig.parse(settings_of(tmp_path, cluster.ports, node))):
                    pass
        leader = next(each for each in cluster.brokers.values() if each.controller.leads)
        registered = leader.controller.image.brokers[node].epoch
        await cluster.start(node)
        assert leader.controller.image.brokers[node].epoch == registered
        past = read_registration(cluster.brokers[node].logs.directory)
        assert past == PastRegistration(broker_epoch=registered, survives_a_crash=True)


async def test_what_a_newer_release_has_written_ends_an_older_node_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        older = cluster.follower
        assert older.place is not None
        store = older.place.store

        def with_an_unknown_record(offset: int, _size: int) -> bytes:
            value = NewRecord(0, None, b"\x01\xf0\x60\0")  # of type 12,400
            return build_batch([value], base_offset=offset, leader_epoch=store.epochs.latest)

        monkeypatch.setattr(store, "read", with_an_unknown_record)
        await make(next(each for each in cluster.brokers.values() if each is not older), "t")
        async with asyncio.timeout(20):
            await older.stop.wait()
        assert "has something that this version cannot read" in older.place.driven_out
        assert "start this node with the version that the others run" in older.place.driven_out
        await cluster.stop(older.node_id)
        assert len(cluster.brokers) == 2
