"""Who may be in an ISR: a leader of now asks, for brokers of now."""

import uuid
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from tidemill.broker.quorum.image import BrokerImage, ClusterImage, PartitionImage, TopicImage, apply_batch
from tidemill.broker.quorum.in_sync import AlterPartition, IsrProposal, IsrResult, IsrResults
from tidemill.broker.quorum.metadata import Rules, decide
from tidemill.broker.quorum.shared_map import SharedMap
from tidemill.core.error_code import ErrorCode

TOPIC_ID = uuid.UUID(int=1)
EPOCHS = {1: 101, 2: 102, 3: 103, 4: 104}
FENCED = 4


def broker(node_id: int, **more: Any) -> BrokerImage:
    terms: dict[str, Any] = {"fenced": node_id == FENCED, **more}
    return BrokerImage(
        node_id=node_id, epoch=EPOCHS[node_id], incarnation_id=uuid.UUID(int=node_id), end_points=(), rack=None, **terms
    )


def cluster(**more: Any) -> ClusterImage:
    terms: dict[str, Any] = {"replicas": (1, 2, 3, 4), "isr": (1, 2), "leader": 1, **more}
    partition = PartitionImage(partition=0, leader_epoch=7, partition_epoch=9, **terms)
    topic = TopicImage(name="t", topic_id=TOPIC_ID, partitions=(partition,), configs={"min.insync.replicas": "2"})
    return ClusterImage(
        topics=SharedMap({"t": topic}),
        topic_names=SharedMap({TOPIC_ID: "t"}),
        brokers=MappingProxyType({node: broker(node) for node in EPOCHS}),
        partition_count=1,
    )


def proposal(*isr: int, **more: Any) -> IsrProposal:
    terms: dict[str, Any] = {
        "partition": 0,
        "broker_epochs": tuple(EPOCHS.get(node, 1) for node in isr),
        "leader_epoch": 7,
        "partition_epoch": 9,
        **more,
    }
    return IsrProposal(isr=isr, **terms)


def ask(
    image: ClusterImage, *proposals: IsrProposal, topic_id: uuid.UUID = TOPIC_ID, **more: Any
) -> tuple[tuple[IsrResult, ...], ClusterImage]:
    terms: dict[str, Any] = {"broker_id": 1, "broker_epoch": 101, **more}
    result = decide(image, AlterPartition(topics=((topic_id, proposals),), **terms), Rules())
    assert isinstance(result.response, IsrResults)
    assert result.response.error is None
    return result.response.partitions, apply_batch(image, result.records)


def code(result: IsrResult) -> int:
    return 0 if result.error is None else result.error.code


def test_what_is_granted_is_answered_as_it_is_then() -> None:
    (result,), image = ask(cluster(), proposal(1, 2, 3))
    partition = image.topics["t"].partitions[0]
    assert (code(result), result.after) == (0, partition)
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((1, 2, 3), 7, 10)


def test_asking_for_what_there_is_moves_the_partition_epoch() -> None:
    (result,), image = ask(cluster(), proposal(1, 2))
    assert (code(result), image.topics["t"].partitions[0].partition_epoch) == (0, 10)


def test_who_leaves_an_isr_that_becomes_too_small_stays_eligible() -> None:
    _, image = ask(cluster(), proposal(1))
    partition = image.topics["t"].partitions[0]
    assert (partition.isr, partition.eligible_leader_replicas) == ((1,), (2,))
    _, image = ask(image, proposal(1, 3, partition_epoch=10))
    assert image.topics["t"].partitions[0].eligible_leader_replicas == ()


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (proposal(1, 2, leader_epoch=6), ErrorCode.FENCED_LEADER_EPOCH),
        (proposal(1, 2, leader_epoch=8), ErrorCode.NOT_CONTROLLER),
        (proposal(1, 2, partition_epoch=10), ErrorCode.NOT_CONTROLLER),
        (proposal(1, 2, partition_epoch=8), ErrorCode.INVALID_UPDATE_VERSION),
        (proposal(1, 2, 9), ErrorCode.INVALID_REQUEST),
        (proposal(1, 1), ErrorCode.INVALID_REQUEST),
        (proposal(2), ErrorCode.INVALID_REQUEST),
        (proposal(), ErrorCode.INVALID_REQUEST),
        (proposal(1, 2, broker_epochs=(101,)), ErrorCode.INVALID_REQUEST),
        (proposal(1, 2, leader_recovery_state=1), ErrorCode.INVALID_REQUEST),
        (proposal(1, leader_recovery_state=1), ErrorCode.INVALID_REQUEST),
        (proposal(1, leader_recovery_state=2), ErrorCode.INVALID_REQUEST),
        (proposal(1, 2, 4), ErrorCode.INELIGIBLE_REPLICA),
        (proposal(1, 2, 3, broker_epochs=(101, 102, 99)), ErrorCode.INELIGIBLE_REPLICA),
        (proposal(1, 2, 3, broker_epochs=(101, 102, -1)), ErrorCode.INELIGIBLE_REPLICA),
        (proposal(1, 2, broker_epochs=(-1, -1)), ErrorCode.NONE),
        (proposal(1, 2, partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_not_granted(asked: IsrProposal, error: ErrorCode) -> None:
    before = cluster()
    (result,), image = ask(before, asked)
    assert code(result) == error
    assert (image == before) == (error is not ErrorCode.NONE)


def test_who_is_about_to_stop_is_not_taken_in() -> None:
    image = cluster()
    brokers = {**image.brokers, 3: broker(3, in_controlled_shutdown=True)}
    (result,), _ = ask(replace(image, brokers=MappingProxyType(brokers)), proposal(1, 2, 3))
    assert code(result) == ErrorCode.INELIGIBLE_REPLICA


def test_only_who_leads_asks_and_only_once() -> None:
    (result,), _ = ask(cluster(), proposal(1, 2), broker_id=2, broker_epoch=102)
    assert code(result) == ErrorCode.INVALID_REQUEST
    (result,), _ = ask(cluster(), proposal(1, 2), topic_id=uuid.UUID(int=9))
    assert code(result) == ErrorCode.UNKNOWN_TOPIC_ID
    results, image = ask(cluster(), proposal(1, 2, 3), proposal(1))
    assert [code(each) for each in results] == [0, ErrorCode.INVALID_REQUEST]
    assert image.topics["t"].partitions[0].isr == (1, 2, 3)


@pytest.mark.parametrize(("node", "epoch"), [(1, 100), (1, 102), (9, 101)])
def test_an_incarnation_that_is_over_gets_nothing(node: int, epoch: int) -> None:
    request = AlterPartition(broker_id=node, broker_epoch=epoch, topics=((TOPIC_ID, (proposal(1, 2),)),))
    result = decide(cluster(), request, Rules())
    assert isinstance(result.response, IsrResults)
    assert result.response.error is not None
    assert (result.response.error.code, result.records) == (ErrorCode.STALE_BROKER_EPOCH, ())


def test_a_leader_says_when_it_has_recovered() -> None:
    before = cluster(isr=(1,), leader_recovery_state=1)
    _, image = ask(before, proposal(1, leader_recovery_state=1))
    assert image.topics["t"].partitions[0].leader_recovery_state == 1
    _, image = ask(before, proposal(1))
    assert image.topics["t"].partitions[0].leader_recovery_state == 0


def test_a_reassignment_ends_with_the_isr_that_has_all() -> None:
    image = cluster(replicas=(2, 3, 1), isr=(1, 2), adding_replicas=(3,), removing_replicas=(1,))
    (result,), image = ask(image, proposal(1, 2, 3))
    partition = image.topics["t"].partitions[0]
    assert code(result) == ErrorCode.NEW_LEADER_ELECTED
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3), (2, 3), 2)
    assert not partition.reassigned


def test_a_reassignment_ends_with_the_isr_that_it_leaves() -> None:
    image = cluster(replicas=(1, 2, 3), isr=(1,), adding_replicas=(1,), removing_replicas=(2, 3))
    (result,), image = ask(image, proposal(1, 2, 3))
    partition = image.topics["t"].partitions[0]
    assert (code(result), partition.replicas, partition.isr) == (0, (1,), (1,))
