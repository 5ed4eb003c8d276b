"""Records in an order that the log of a cluster may have: each contradicts nothing before it"""

import uuid
from collections.abc import Callable

from hypothesis import strategies as st

from tidemill.broker.quorum.image import RESOURCE_BROKER, RESOURCE_TOPIC, ClusterImage, apply
from tidemill.broker.quorum.records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

NODES = st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True).map(tuple)
IDS = st.integers(1, 4).map(lambda number: uuid.UUID(int=number))
USERS = st.sampled_from(["alice", "bob"])
ENTITIES = st.sampled_from(
    [
        (QuotaEntity(entity_type="user", entity_name="alice"),),
        (QuotaEntity(entity_type="user", entity_name=None),),
        (QuotaEntity(entity_type="user", entity_name="a"), QuotaEntity(entity_type="client-id", entity_name="b")),
        (QuotaEntity(entity_type="client-id", entity_name="b"), QuotaEntity(entity_type="user", entity_name="a")),
    ]
)
ANYTIME = st.one_of(
    st.builds(
        RegisterBrokerRecord,
        broker_id=st.integers(1, 4),
        incarnation_id=IDS,
        broker_epoch=st.integers(0, 99),
        end_points=st.just((BrokerEndpoint(name="P", host="h", port=1),)),
        features=st.just(()) | st.just((BrokerFeature(name="f", min_supported_version=0, max_supported_version=2),)),
        fenced=st.booleans(),
        in_controlled_shutdown=st.booleans(),
    ),
    st.builds(UnregisterBrokerRecord, broker_id=st.integers(1, 4), broker_epoch=st.just(0)),
    st.builds(FeatureLevelRecord, name=st.sampled_from(["f", "g"]), feature_level=st.integers(0, 3)),
    st.builds(
        AccessControlEntryRecord,
        id=IDS,
        resource_type=st.just(2),
        resource_name=USERS,
        pattern_type=st.just(3),
        principal=USERS,
        host=st.just("*"),
        operation=st.integers(2, 5),
        permission_type=st.just(3),
    ),
    st.builds(RemoveAccessControlEntryRecord, id=IDS),
    st.builds(
        UserScramCredentialRecord,
        name=USERS,
        mechanism=st.integers(1, 2),
        salt=st.binary(max_size=4),
        stored_key=st.just(b"s"),
        server_key=st.just(b"v"),
        iterations=st.integers(4096, 4098),
    ),
    st.builds(RemoveUserScramCredentialRecord, name=USERS, mechanism=st.integers(1, 2)),
    st.builds(
        ClientQuotaRecord,
        entity=ENTITIES,
        key=st.sampled_from(["producer_byte_rate", "request_percentage"]),
        value=st.floats(0, 9),
        remove=st.booleans(),
    ),
    st.builds(
        DelegationTokenRecord,
        owner=USERS,
        requester=USERS,
        renewers=st.just(("User:c",)),
        issue_timestamp=st.just(1),
        max_timestamp=st.just(9),
        expiration_timestamp=st.integers(2, 9),
        token_id=st.sampled_from(["t1", "t2"]),
    ),
    st.builds(RemoveDelegationTokenRecord, token_id=st.sampled_from(["t1", "t2"])),
    st.builds(
        ConfigRecord,
        resource_type=st.just(RESOURCE_BROKER),
        resource_name=st.sampled_from(["", "1"]),
        name=st.just("k"),
        value=st.none() | st.just("v"),
    ),
)


@st.composite
def histories(draw: st.DrawFn, *, max_size: int = 30) -> list[MetadataRecord]:
    """Records from nothing on."""
    image, records = ClusterImage(), list[MetadataRecord]()
    for number in range(draw(st.integers(0, max_size))):
        record = draw(st.sampled_from(KINDS))(draw, image, number)
        if record is not None:
            records.append(record)
            image = apply(image, record)
    return records


def _anytime(draw: st.DrawFn, _image: ClusterImage, _number: int) -> MetadataRecord | None:
    return draw(ANYTIME)


def _topic(draw: st.DrawFn, image: ClusterImage, number: int) -> MetadataRecord | None:
    name = draw(st.sampled_from(["a", "b_c", "d"]))
    return None if name in image.topics else TopicRecord(name=name, topic_id=uuid.UUID(int=100 + number))


def _of_topic(draw: st.DrawFn, image: ClusterImage, _number: int) -> MetadataRecord | None:
    if not image.topics:
        return None
    topic = image.topics[draw(st.sampled_from(sorted(image.topics)))]
    count = len(topic.partitions)
    if count and draw(st.booleans()):
        maybe = st.none() | NODES
        return PartitionChangeRecord(
            partition_id=draw(st.integers(0, count - 1)),
            topic_id=topic.topic_id,
            isr=draw(maybe),
            leader=draw(st.integers(-2, 5)),
            replicas=draw(maybe),
            removing_replicas=draw(maybe | st.just(())),
            adding_replicas=draw(maybe | st.just(())),
            leader_recovery_state=draw(st.integers(-1, 1)),
            eligible_leader_replicas=draw(maybe | st.just(())),
            last_known_elr=draw(maybe | st.just(())),
        )
    nodes = draw(NODES)
    return draw(
        st.sampled_from(
            [
                PartitionRecord(
                    partition_id=count,
                    topic_id=topic.topic_id,
                    replicas=nodes,
                    isr=nodes,
                    leader=nodes[0],
                    adding_replicas=nodes[:1],
                    removing_replicas=nodes[1:],
                    leader_recovery_state=count % 2,
                    eligible_leader_replicas=nodes[2:],
                    last_known_elr=nodes[3:],
                ),
                ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic.name, name="k", value=str(nodes[0])),
                ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic.name, name="k", value=None),
                RemoveTopicRecord(topic_id=topic.topic_id),
            ]
        )
    )


def _of_broker(draw: st.DrawFn, image: ClusterImage, _number: int) -> MetadataRecord | None:
    if not image.brokers:
        return None
    broker = image.brokers[draw(st.sampled_from(sorted(image.brokers)))]
    return BrokerRegistrationChangeRecord(
        broker_id=broker.node_id,
        broker_epoch=broker.epoch,
        fenced=draw(st.integers(-1, 1)),
        in_controlled_shutdown=draw(st.integers(0, 1)),
    )


def _producer_ids(_draw: st.DrawFn, image: ClusterImage, _number: int) -> MetadataRecord | None:
    return ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=image.next_producer_id + 1000)


KINDS: list[Callable[[st.DrawFn, ClusterImage, int], MetadataRecord | None]] = [
    _anytime, _anytime, _topic, _of_topic, _of_topic, _of_topic, _of_broker, _producer_ids,
]  # fmt: skip
