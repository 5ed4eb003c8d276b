"""What brokers ask of the active controller, through Kafka's bytes and back"""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.quorum.brokers import HeartbeatResult
from tidemill.broker.quorum.image import PartitionImage
from tidemill.broker.quorum.in_sync import AlterPartition, IsrProposal, IsrResult, IsrResults
from tidemill.broker.quorum.metadata import RegisterBroker
from tidemill.broker.quorum.node_wire import (
    LOSES_NOTHING,
    heartbeat_from_wire,
    heartbeat_to_wire,
    isr_answer_to_wire,
    isr_from_wire,
    isr_to_wire,
    registration_from_wire,
    registration_to_wire,
)
from tidemill.broker.quorum.records import BrokerEndpoint, BrokerFeature
from tidemill.broker.quorum.transport import decode_call, encode_call
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import FencedLeaderEpoch, StaleBrokerEpoch
from tidemill.core.wire.messages.alter_partition import AlterPartitionRequest, TopicData
from tidemill.core.wire.messages.alter_partition import PartitionData as Wanted
from tidemill.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from tidemill.core.wire.messages.broker_registration import BrokerRegistrationRequest

ids = st.integers(0, 2**31 - 1)
epochs = st.integers(-1, 2**62)
names = st.text("abc.-0", min_size=1, max_size=5)
uuids = st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number))
small = st.integers(0, 99)
registrations = st.builds(
    RegisterBroker,
    broker_id=ids,
    incarnation_id=uuids,
    end_points=st.lists(
        st.builds(
            BrokerEndpoint, name=names, host=names, port=st.integers(0, 65535), security_protocol=st.integers(0, 3)
        ),
        max_size=3,
    ).map(tuple),
    rack=st.none() | names,
    fenced=st.just(True),
    cluster_id=names,
    features=st.lists(
        st.builds(BrokerFeature, name=names, min_supported_version=small, max_supported_version=small), max_size=2
    ).map(tuple),
    previous_broker_epoch=epochs,
    loses_nothing=st.booleans(),
    session_live=st.booleans(),
)
proposals = st.builds(
    lambda number, members, epoch, partition_epoch, state: IsrProposal(
        partition=number,
        isr=tuple(members),
        broker_epochs=tuple(members.values()),
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        leader_recovery_state=state,
    ),
    ids,
    st.dictionaries(ids, epochs, min_size=1, max_size=3),
    ids,
    ids,
    st.integers(0, 1),
)


@given(registrations)
def test_a_registration_comes_back_as_it_was(request: RegisterBroker) -> None:
    heard, _ = decode_call(encode_call(registration_to_wire(request), 4))
    assert isinstance(heard, BrokerRegistrationRequest)
    assert registration_from_wire(heard, session_live=request.session_live) == request


def test_what_kafka_has_no_word_for_is_a_feature() -> None:
    request = RegisterBroker(broker_id=1, incarnation_id=uuid.UUID(int=1), end_points=(), loses_nothing=True)
    assert [each.name for each in registration_to_wire(request).features] == [LOSES_NOTHING]


@given(ids, epochs, st.lists(st.tuples(uuids, proposals), max_size=5))
def test_what_leaders_want_comes_back_by_topic(
    broker_id: int, epoch: int, wanted: list[tuple[uuid.UUID, IsrProposal]]
) -> None:
    heard, _ = decode_call(encode_call(isr_to_wire(broker_id, epoch, wanted), 3))
    assert isinstance(heard, AlterPartitionRequest)
    found = isr_from_wire(heard)
    assert (found.broker_id, found.broker_epoch) == (broker_id, epoch)
    by_topic: dict[uuid.UUID, list[IsrProposal]] = {}
    for topic_id, proposal in wanted:
        by_topic.setdefault(topic_id, []).append(proposal)
    assert {topic_id: list(some) for topic_id, some in found.topics} == by_topic


def test_a_version_without_broker_epochs_knows_none() -> None:
    old = AlterPartitionRequest(
        topics=(TopicData(topic_id=uuid.UUID(int=1), partitions=(Wanted(new_isr=(3, 1)),)),),
    )
    heard, _ = decode_call(encode_call(old, 2))
    assert isinstance(heard, AlterPartitionRequest)
    found: AlterPartition = isr_from_wire(heard)
    assert (found.topics[0][1][0].isr, found.topics[0][1][0].broker_epochs) == ((3, 1), (-1, -1))


def test_a_heartbeat_says_all_that_is_judged() -> None:
    message = BrokerHeartbeatRequest(
        broker_id=3, broker_epoch=7, current_metadata_offset=9, want_fence=True, want_shut_down=True
    )
    found = heartbeat_from_wire(message, others_know=True)
    assert (found.broker_id, found.broker_epoch, found.metadata_offset) == (3, 7, 9)
    assert (found.want_fence, found.want_shut_down, found.others_know) == (True, True, True)
    answer = heartbeat_to_wire(HeartbeatResult(is_caught_up=True, is_fenced=False, should_shut_down=True))
    assert (answer.error_code, answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (0, True, False, True)
    refused = heartbeat_to_wire(HeartbeatResult(error=StaleBrokerEpoch()))
    assert (refused.error_code, refused.is_fenced) == (ErrorCode.STALE_BROKER_EPOCH, True)


def test_how_partitions_stand_is_told_by_topic() -> None:
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    after = PartitionImage(
        partition=0, replicas=(1, 2), isr=(1,), leader=1, leader_epoch=4, partition_epoch=8, leader_recovery_state=1
    )
    results = IsrResults(
        partitions=(
            IsrResult(topic_id=second, partition=0, after=after),
            IsrResult(topic_id=first, partition=3, error=FencedLeaderEpoch()),
            IsrResult(topic_id=second, partition=1),
        )
    )
    told = isr_answer_to_wire(results)
    assert [topic.topic_id for topic in told.topics] == [first, second]
    assert (told.topics[0].partitions[0].error_code, told.topics[0].partitions[0].leader_id) == (74, -1)
    granted = told.topics[1].partitions[0]
    assert (granted.error_code, granted.isr, granted.partition_epoch, granted.leader_recovery_state) == (0, (1,), 8, 1)
    assert told.topics[1].partitions[1].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert isr_answer_to_wire(IsrResults(error=StaleBrokerEpoch())).error_code == ErrorCode.STALE_BROKER_EPOCH
