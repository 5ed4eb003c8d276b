"""What brokers ask of the active controller, as Kafka's messages and back

BrokerRegistration (62), BrokerHeartbeat (63), AlterPartition (56) and AllocateProducerIds (67). Kafka's registration
has no word for `loses_nothing`; it is said as a feature, which is what it is: this broker acknowledges nothing that is
not on its disk.
"""

import uuid
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from tidemill.broker.quorum.brokers import BrokerHeartbeat, HeartbeatResult
from tidemill.broker.quorum.in_sync import AlterPartition, IsrProposal, IsrResult, IsrResults
from tidemill.broker.quorum.metadata import RegisterBroker
from tidemill.broker.quorum.records import BrokerEndpoint, BrokerFeature
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.messages import alter_partition as isr
from tidemill.core.wire.messages import broker_heartbeat as heartbeat
from tidemill.core.wire.messages import broker_registration as registration

LOSES_NOTHING: Final = "tidemill.loses.nothing"


# --- registration


def registration_to_wire(request: RegisterBroker) -> registration.BrokerRegistrationRequest:
    """Of a broker that is to be a member of a cluster of several."""
    told = [
        registration.Feature(
            name=each.name,
            min_supported_version=each.min_supported_version,
            max_supported_version=each.max_supported_version,
        )
        for each in request.features
    ]
    if request.loses_nothing:
        told.append(registration.Feature(name=LOSES_NOTHING, min_supported_version=0, max_supported_version=1))
    return registration.BrokerRegistrationRequest(
        broker_id=request.broker_id,
        cluster_id=request.cluster_id,
        incarnation_id=request.incarnation_id,
        listeners=tuple(
            registration.Listener(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.end_points
        ),
        features=tuple(told),
        rack=request.rack,
        previous_broker_epoch=request.previous_broker_epoch,
    )


def registration_from_wire(
    message: registration.BrokerRegistrationRequest, *, session_live: bool
) -> RegisterBroker:  # fmt: skip
    """What is to be judged; whether somebody is heard of by that id is known here."""
    return RegisterBroker(
        broker_id=message.broker_id,
        incarnation_id=message.incarnation_id,
        end_points=tuple(
            BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in message.listeners
        ),
        rack=message.rack,
        fenced=True,
        cluster_id=message.cluster_id,
        features=tuple(
            BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in message.features
            if each.name != LOSES_NOTHING
        ),
        previous_broker_epoch=message.previous_broker_epoch,
        loses_nothing=any(each.name == LOSES_NOTHING for each in message.features),
        session_live=session_live,
    )


# --- heartbeats


def heartbeat_from_wire(message: heartbeat.BrokerHeartbeatRequest, *, others_know: bool) -> BrokerHeartbeat:
    """What is to be judged."""
    return BrokerHeartbeat(
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        metadata_offset=message.current_metadata_offset,
        want_fence=message.want_fence,
        want_shut_down=message.want_shut_down,
        others_know=others_know,
    )


def heartbeat_to_wire(result: HeartbeatResult) -> heartbeat.BrokerHeartbeatResponse:
    """How the broker stands."""
    return heartbeat.BrokerHeartbeatResponse(
        error_code=ErrorCode.NONE if result.error is None else result.error.code,
        is_caught_up=result.is_caught_up,
        is_fenced=result.is_fenced,
        should_shut_down=result.should_shut_down,
    )


# --- replicas in sync


def isr_to_wire(
    broker_id: int, broker_epoch: int, wanted: Sequence[tuple[uuid.UUID, IsrProposal]]
) -> isr.AlterPartitionRequest:
    """What a broker wants of the partitions that it leads, by topic."""
    by_topic = sorted(wanted, key=lambda each: each[0])
    topics = tuple(
        isr.TopicData(topic_id=topic_id, partitions=tuple(_partition(proposal) for _, proposal in proposals))
        for topic_id, proposals in groupby(by_topic, key=lambda each: each[0])
    )
    return isr.AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=topics)


def _partition(proposal: IsrProposal) -> isr.PartitionData:
    members = zip(proposal.isr, proposal.broker_epochs, strict=True)
    return isr.PartitionData(
        partition_index=proposal.partition,
        leader_epoch=proposal.leader_epoch,
        new_isr_with_epochs=tuple(isr.BrokerState(broker_id=node, broker_epoch=epoch) for node, epoch in members),
        leader_recovery_state=proposal.leader_recovery_state,
        partition_epoch=proposal.partition_epoch,
    )


def isr_from_wire(message: isr.AlterPartitionRequest) -> AlterPartition:
    """What is to be judged; a version without broker epochs says -1 for each."""
    return AlterPartition(
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        topics=tuple((topic.topic_id, tuple(_proposal(each) for each in topic.partitions)) for topic in message.topics),
    )


def _proposal(data: isr.PartitionData) -> IsrProposal:
    members = data.new_isr_with_epochs
    return IsrProposal(
        partition=data.partition_index,
        isr=tuple(each.broker_id for each in members) or data.new_isr,
        broker_epochs=tuple(each.broker_epoch for each in members) or (-1,) * len(data.new_isr),
        leader_epoch=data.leader_epoch,
        partition_epoch=data.partition_epoch,
        leader_recovery_state=data.leader_recovery_state,
    )


def isr_answer_to_wire(results: IsrResults) -> isr.AlterPartitionResponse:
    """How the partitions stand, or why they stay as they are."""
    by_topic = sorted(results.partitions, key=lambda each: each.topic_id)
    return isr.AlterPartitionResponse(
        error_code=ErrorCode.NONE if results.error is None else results.error.code,
        topics=tuple(
            isr.TopicResult(topic_id=topic_id, partitions=tuple(_result(each) for each in some))
            for topic_id, some in groupby(by_topic, key=lambda each: each.topic_id)
        ),
    )


def _result(result: IsrResult) -> isr.PartitionResult:
    after = result.after
    if after is None:
        error = ErrorCode.UNKNOWN_SERVER_ERROR if result.error is None else result.error.code
        return isr.PartitionResult(partition_index=result.partition, error_code=error, leader_id=-1, leader_epoch=-1)
    return isr.PartitionResult(
        partition_index=result.partition,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )
