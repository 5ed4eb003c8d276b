"""One table of admin requests, asked of a running broker of ours and of a real Apache Kafka

Both have to answer every request with the same error codes. Where we answer otherwise on purpose, the table says why,
and such a row has to differ: a reason that is no longer needed is found out.
"""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers import Peer
from tests.broker.broker_world import WireClient
from tests.broker.test_routes import error_codes
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages import alter_configs, incremental_alter_configs
from tidemill.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidemill.core.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidemill.core.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidemill.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidemill.core.wire.messages.delete_groups import DeleteGroupsRequest
from tidemill.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidemill.core.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidemill.core.wire.messages.describe_groups import DescribeGroupsRequest
from tidemill.core.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidemill.core.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionQuery, TopicQuery
from tidemill.core.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidemill.core.wire.messages.init_producer_id import InitProducerIdRequest
from tidemill.core.wire.messages.list_config_resources import ListConfigResourcesRequest
from tidemill.core.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tidemill.core.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidemill.core.wire.messages.unregister_broker import UnregisterBrokerRequest
from tidemill.core.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.kafka_peer, pytest.mark.timeout(180)]

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


class Question(NamedTuple):
    """One request; `differs` says why our answer is not Kafka's."""

    name: str
    key: ApiKey
    version: int
    request: Message
    differs: str = ""


def replace(kind: int, name: str, **configs: str | None) -> Message:
    rows = tuple(alter_configs.AlterableConfig(name=k.replace("_", "."), value=v) for k, v in configs.items())
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    return alter_configs.AlterConfigsRequest(resources=(resource,), validate_only=True)


def change(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Message:
    rows = tuple(
        incremental_alter_configs.AlterableConfig(name=key, config_operation=op, value=value)
        for key, op, value in changes
    )
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=True)


def describe(kind: int, name: str) -> Message:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=("retention.ms",))
    return DescribeConfigsRequest(resources=(resource,))


def settings(topic: str) -> Iterator[Question]:
    """Questions about configurations."""
    typo = "a key that nobody knows is a typo, kept without a word it would never be found"
    legacy: list[tuple[str, Message, str]] = [
        ("a topic", replace(TOPIC, topic, retention_ms="1000"), ""),
        ("no number", replace(TOPIC, topic, retention_ms="soon"), ""),
        ("no value", replace(TOPIC, topic, retention_ms=None), ""),
        ("unknown topic key", replace(TOPIC, topic, nonsense="1"), ""),
        ("no such topic", replace(TOPIC, "missing", retention_ms="5"), ""),
        ("no topic name", replace(TOPIC, ""), ""),
        ("needs a restart", replace(BROKER, "1", num_partitions="3", node_id="3"), ""),
        ("needs a restart everywhere", replace(BROKER, "", num_partitions="3"), ""),
        ("broker value", replace(BROKER, "1", log_retention_ms="soon"), ""),
        ("unknown broker key", replace(BROKER, "1", nonsense="1"), typo),
        ("another broker", replace(BROKER, "7", log_retention_ms="5000"), ""),
        ("no broker", replace(BROKER, "x"), ""),
        ("no such type", replace(9, "1"), ""),
    ]
    for name, request, differs in legacy:
        yield Question(f"replace: {name}", ApiKey.ALTER_CONFIGS, 2, request, differs)
    incremental: list[tuple[str, Message, str]] = [
        ("needs a restart", change(BROKER, "1", ("num.partitions", SET, "3")), ""),
        ("delete what needs a restart", change(BROKER, "1", ("num.partitions", DELETE, None)), ""),
        ("connections", change(BROKER, "1", ("max.connections", SET, "5000")), ""),
        ("throttle", change(BROKER, "1", ("leader.replication.throttled.rate", SET, "5000")), ""),
        ("delete an unknown key", change(TOPIC, topic, ("nonsense", DELETE, None)), ""),
        ("unknown broker key", change(BROKER, "1", ("nonsense", SET, "1")), typo),
        ("append to a number", change(TOPIC, topic, ("retention.ms", APPEND, "1")), ""),
        ("append nothing", change(TOPIC, topic, ("cleanup.policy", APPEND, None)), ""),
        ("twice", change(TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")), ""),
        ("no such operation", change(TOPIC, topic, ("retention.ms", 9, "1")), "Kafka fails, we say what is wrong"),
        ("no value", change(TOPIC, topic, ("retention.ms", SET, None)), ""),
        ("Python's number", change(TOPIC, topic, ("retention.ms", SET, "1_000")), ""),
        ("a number too large", change(TOPIC, topic, ("segment.bytes", SET, "3000000000")), ""),
        (
            "a contradiction",
            change(TOPIC, topic, ("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "5")),
            "",
        ),
        ("tiered storage, unused", change(TOPIC, topic, ("remote.log.copy.disable", SET, "true")), ""),
        ("tiered storage", change(TOPIC, topic, ("remote.storage.enable", SET, "true")), ""),
        ("subtract all", change(TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete")), ""),
        ("a small segment", change(TOPIC, topic, ("segment.bytes", SET, "1000")), "small segments are of use in tests"),
        (
            "a throttle",
            change(TOPIC, topic, ("leader.replication.throttled.replicas", SET, "x")),
            "nothing to throttle",
        ),
        ("listeners", change(BROKER, "1", ("advertised.listeners", SET, "PLAINTEXT://h:1")), ""),
        ("a thread", change(BROKER, "", ("num.io.threads", SET, "9")), "it would have no effect, and says so"),
        ("group", change(GROUP, "g", ("consumer.session.timeout.ms", SET, "46000")), "no groups with settings here"),
        ("client metrics", change(METRICS, "m", ("interval.ms", SET, "1000")), "no client metrics here"),
    ]
    for name, request, differs in incremental:
        yield Question(f"change: {name}", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, differs)
    resources = (
        (TOPIC, topic),
        (TOPIC, "missing"),
        (TOPIC, ""),
        (BROKER, "7"),
        (BROKER, "x"),
        (BROKER, ""),
        (LOGGER, "7"),
    )
    for kind, named in (*resources, (METRICS, "m"), (GROUP, "g"), (GROUP, ""), (9, "1")):
        yield Question(f"describe {kind} {named!r}", ApiKey.DESCRIBE_CONFIGS, 4, describe(kind, named))
    for types in ((), (TOPIC,), (BROKER,), (METRICS,), (GROUP,), (64,), (TOPIC, 64), (0,)):
        request = ListConfigResourcesRequest(resource_types=types)
        yield Question(f"list resources of types {types}", ApiKey.LIST_CONFIG_RESOURCES, 1, request)


def topic(
    name: str, partitions: int = 1, factor: int = 1, places: dict[int, tuple[int, ...]] | None = None, **configs: str
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
            for index, nodes in (places or {}).items()
        ),
        configs=tuple(CreatableTopicConfig(name=key.replace("_", "."), value=text) for key, text in configs.items()),
    )


def topics(there: str) -> Iterator[Question]:
    """Questions about topics to create, to grow and to delete; `there` has two partitions, a dot and a dash."""
    created: dict[str, tuple[CreatableTopic, ...]] = {
        "new": (topic("n"),), "none": (), "defaults": (topic("n", -1, -1),), "there": (topic(there),),
        "there, too many replicas": (topic(there, 1, 5),), "a dot for a dash": (topic(there.replace(".", "_")),),
        "twice": (topic("n"), topic("n")), "names": tuple(map(topic, ("", ".", "..", "a b", "x" * 250, "x" * 249))),
        "no partitions": (topic("n", 0),), "-2 partitions": (topic("n", -2),), "no replicas": (topic("n", 1, 0),),
        "two replicas": (topic("n", 1, 2),), "-2 replicas": (topic("n", 1, -2),),
        **{f"placed {places}": (topic("n", -1, -1, places),) for places in (
            {0: (1,)}, {1: (1,)}, {0: (7,)}, {0: (1, 1)}, {0: ()}, {0: (1,), 1: (1, 7)},
        )},
        "placed and counted": (topic("n", 1, -1, {0: (1,)}),), "placed, with a factor": (topic("n", -1, 1, {0: (1,)}),),
        "a setting": (topic("n", retention_ms="5"),), "no setting": (topic("n", nonsense="5"),),
        "no number": (topic("n", retention_ms="soon"),), "spaces": (topic("n", cleanup_policy=" compact , delete "),),
        "two replicas in sync": (topic("n", min_insync_replicas="2"),),
        "a contradiction": (topic("n", min_compaction_lag_ms="9", max_compaction_lag_ms="5"),),
    }  # fmt: skip
    for name, entries in created.items():
        request = CreateTopicsRequest(topics=entries, validate_only=True)
        yield Question(f"create: {name}", ApiKey.CREATE_TOPICS, 7, request)
    metadata = CreateTopicsRequest(topics=(topic("__cluster_metadata"),), validate_only=True)
    reserved = "its name is refused like other names that cannot be"
    yield Question("create: metadata", ApiKey.CREATE_TOPICS, 7, metadata, reserved)
    grown: list[tuple[str, int, tuple[tuple[int, ...], ...] | None]] = [
        (there, 3, None), (there, 2, None), (there, 1, None), (there, 0, None), (there, -1, None), ("missing", 3, None),
        ("a b", 3, None), (there, 3, ((1,),)), (there, 3, ((1,), (1,))), (there, 4, ((1,),)), (there, 3, ((9,),)),
        (there, 3, ((1, 2),)), (there, 3, ((1, 1),)), (there, 3, ()), (there, 3, ((),)),
    ]  # fmt: skip
    for name, count, nodes in grown:
        places = None if nodes is None else tuple(CreatePartitionsAssignment(broker_ids=node) for node in nodes)
        entry = CreatePartitionsTopic(name=name, count=count, assignments=places)
        title = f"grow {'the topic' if name == there else name} to {count} on {nodes}"
        for entries_of in ((entry,), (entry, entry)):
            grow = CreatePartitionsRequest(topics=entries_of, timeout_ms=5000, validate_only=True)
            yield Question(f"{title}{' twice' * (len(entries_of) - 1)}", ApiKey.CREATE_PARTITIONS, 3, grow)
    missing, unknown = DeleteTopicState(name="missing"), DeleteTopicState(topic_id=uuid.UUID(int=77))
    doubly = DeleteTopicState(name="missing", topic_id=uuid.UUID(int=77))
    for states in (
        (), (missing,), (missing, missing), (unknown,), (unknown, unknown), (doubly,), (DeleteTopicState(),),
        (DeleteTopicState(name="a b"), DeleteTopicState(name="")), (DeleteTopicState(name="__cluster_metadata"),),
    ):  # fmt: skip
        delete = DeleteTopicsRequest(topics=states, timeout_ms=5000)
        title = f"delete {[(state.name, state.topic_id.int) for state in states]}"
        yield Question(title, ApiKey.DELETE_TOPICS, 6, delete)
    for version in (1, 5):
        delete = DeleteTopicsRequest(topic_names=("missing", "missing", "other"), timeout_ms=5000)
        yield Question(f"delete names {version}", ApiKey.DELETE_TOPICS, version, delete)


def replicas(topic: str, folder: str) -> Iterator[Question]:
    """Questions about leaders, replicas and where they lie."""
    named = (TopicPartitions(topic=topic, partitions=(0, 7)), TopicPartitions(topic="missing", partitions=(0,)))
    for election in (0, 1, 2):
        request = ElectLeadersRequest(election_type=election, topic_partitions=named)
        yield Question(f"elect, type {election}", ApiKey.ELECT_LEADERS, 2, request)
    wanted: list[tuple[str, int, tuple[int, ...] | None]] = [
        (topic, 0, (1,)), (topic, 0, (2,)), (topic, 0, (1, 2)), (topic, 0, (1, 1)), (topic, 0, (-1,)), (topic, 0, ()),
        (topic, 0, None), (topic, 9, (1,)), (topic, 9, None), ("missing", 0, (1,)),
    ]  # fmt: skip
    for name, partition, nodes in wanted:
        asked = ReassignableTopic(
            name=name, partitions=(ReassignablePartition(partition_index=partition, replicas=nodes),)
        )
        title = f"reassign {'the' if name == topic else 'no'} topic, partition {partition}, to {nodes}"
        reassign = AlterPartitionReassignmentsRequest(topics=(asked,))
        yield Question(title, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, reassign)
    some = (ListPartitionReassignmentsTopics(name=topic, partition_indexes=(0, 9)),)
    listing = ListPartitionReassignmentsRequest(topics=some)
    yield Question("list reassignments", ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, listing)
    for path in (folder, "/nowhere", "relative", ""):
        moved = (
            AlterReplicaLogDirTopic(name=topic, partitions=(0, 9)),
            AlterReplicaLogDirTopic(name="x", partitions=(0,)),
        )
        move = AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=path, topics=moved),))
        title = "move to the folder it is in" if path == folder else f"move to folder {path!r}"
        yield Question(title, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, move)
    asked_for = (DescribableLogDirTopic(topic=topic, partitions=(0, 9)),)
    for version in (1, 5):
        yield Question(
            f"log dirs {version}", ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=asked_for)
        )


def cluster(topic: str) -> Iterator[Question]:
    """Questions about the quorum, features, brokers and committed offsets."""
    for name, partition in (("__cluster_metadata", 0), ("__cluster_metadata", 1), (topic, 0)):
        query = TopicQuery(topic_name=name, partitions=(PartitionQuery(partition_index=partition),))
        title = f"quorum of {'the topic' if name == topic else name} {partition}"
        yield Question(title, ApiKey.DESCRIBE_QUORUM, 2, DescribeQuorumRequest(topics=(query,)))
    for feature, level, differs in (
        ("nonsense", 1, ""),
        ("nonsense", 0, ""),
        ("transaction.version", 2, "no features are served yet"),
    ):
        update = FeatureUpdateKey(feature=feature, max_version_level=level)
        request = UpdateFeaturesRequest(feature_updates=(update,), validate_only=True)
        yield Question(f"feature {feature} {level}", ApiKey.UPDATE_FEATURES, 2, request, differs)
    yield Question("unregister", ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(broker_id=7))
    for group in ("nobody", "", topic):
        title = "the group" if group == topic else repr(group)
        for version in (5, 6):
            describe_group = DescribeGroupsRequest(groups=(group,), include_authorized_operations=True)
            yield Question(f"describe {title} {version}", ApiKey.DESCRIBE_GROUPS, version, describe_group)
    for group, name, partitions in (
        ("nobody", topic, (0,)),
        ("", topic, (0,)),
        ("nobody", "missing", (0,)),
        (topic, topic, (0, 1, 9)),
    ):
        entries = tuple(OffsetDeleteRequestPartition(partition_index=index) for index in partitions)
        delete = OffsetDeleteRequest(group_id=group, topics=(OffsetDeleteRequestTopic(name=name, partitions=entries),))
        shown = tuple("the topic" if text == topic else text for text in (group, name))
        yield Question(f"delete offsets {shown} {partitions}", ApiKey.OFFSET_DELETE, 0, delete)

    yield Question("delete no group", ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=("nobody", "")))
    asked = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    yield Question("producer of an empty transaction", ApiKey.INIT_PRODUCER_ID, 5, asked)


async def ask_all(address: str, topic: str, folder: str) -> dict[str, list[int]]:
    """The error codes of every answer, in order of number: brokers list topics in an order of their own."""
    host, _, port = address.rpartition(":")
    client = WireClient(*await asyncio.open_connection(host, int(port)))
    questions = (*settings(topic), *topics(topic), *replicas(topic, folder), *cluster(topic))
    answers: dict[str, list[int]] = {}
    for question in questions:
        response: Any = await client.ask(question.key, question.version, question.request)
        assert question.name not in answers
        answers[question.name] = sorted(error_codes(response))
    await client.close()
    return answers


def prepare(address: str, topic: str) -> None:
    """A topic, and a group of the same name with a committed offset."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic})
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()


def log_folder(address: str) -> str:
    """Where the broker says that its logs are."""

    async def ask() -> str:
        host, _, port = address.rpartition(":")
        client = WireClient(*await asyncio.open_connection(host, int(port)))
        response = await client.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=()))
        await client.close()
        (folder,) = response.results
        return str(folder.log_dir)

    return asyncio.run(ask())


def test_every_answer_has_the_codes_of_kafkas_answer(kafka_peer: tuple[str, Peer], tidemill_broker: Service) -> None:
    topic = f"admin.of-{uuid.uuid4().hex[:8]}"
    found = []
    for address in (kafka_peer[0], str(tidemill_broker.facts["address"])):
        prepare(address, topic)
        found.append(asyncio.run(ask_all(address, topic, log_folder(address))))
    theirs, ours = found
    reasons = {
        row.name: row.differs
        for row in (*settings(topic), *topics(topic), *replicas(topic, ""), *cluster(topic))
        if row.differs
    }
    assert set(theirs) == set(ours)
    different = {name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]}
    assert {name: codes for name, codes in different.items() if name not in reasons} == {}
    assert set(reasons) <= set(different), "these rows need no reason any more"
    assert len(theirs) > 150
