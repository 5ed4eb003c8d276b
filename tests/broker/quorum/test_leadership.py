"""Elections and reassignments: who is to lead and to hold a partition, for any state of five brokers."""

import uuid
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.broker.quorum.image import (
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
    apply_batch,
    partition_after,
)
from tidemill.broker.quorum.leadership import (
    RECOVERING,
    AlterReassignments,
    ElectLeaders,
    PartitionResult,
    Reassignment,
    changed,
    elect,
)
from tidemill.broker.quorum.metadata import Rules, decide
from tidemill.broker.quorum.shared_map import SharedMap
from tidemill.core.error_code import ErrorCode

FENCED, LEAVING, GONE = 3, 4, 5
TOPIC_ID = uuid.UUID(int=1)
NONE, NOT_NEEDED = ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED
NO_PREFERRED, NO_ELIGIBLE = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
BAD_REPLICAS, BAD_FACTOR = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.INVALID_REPLICATION_FACTOR


def broker(node_id: int) -> BrokerImage:
    return BrokerImage(
        node_id=node_id,
        epoch=1,
        incarnation_id=uuid.UUID(int=node_id),
        end_points=(),
        rack=None,
        fenced=node_id == FENCED,
        in_controlled_shutdown=node_id == LEAVING,
    )


def cluster(*partitions: PartitionImage, **configs: str) -> ClusterImage:
    """Brokers 1, 2 and 6 are well, 3 is fenced, 4 is about to leave, 5 is gone."""
    topic = TopicImage(name="t", topic_id=TOPIC_ID, partitions=partitions, configs=configs)
    return ClusterImage(
        topics=SharedMap({"t": topic}),
        topic_names=SharedMap({TOPIC_ID: "t"}),
        brokers=MappingProxyType({node: broker(node) for node in (1, 2, 3, 4, 6)}),
        partition_count=len(partitions),
    )


def partition(
    replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, number: int = 0, **more: Any
) -> PartitionImage:
    terms: dict[str, Any] = {"leader_epoch": 7, "partition_epoch": 9, **more}
    return PartitionImage(partition=number, replicas=replicas, isr=isr, leader=leader, **terms)


def decided(image: ClusterImage, request: Any, **rules: Any) -> tuple[list[ErrorCode], ClusterImage]:
    """The codes of the results, and what becomes of the image."""
    result = decide(image, request, Rules(**rules))
    codes = []
    for each in result.response:  # type: ignore[union-attr]
        assert isinstance(each, PartitionResult)
        codes.append(ErrorCode(each.error.code) if each.error else NONE)
    return codes, apply_batch(image, result.records)


@pytest.mark.parametrize(
    ("replicas", "isr", "leader", "code", "after"),
    [
        ((1, 2), (1, 2), 1, NOT_NEEDED, (1, (1, 2), 7)),
        ((1, 2), (1, 2), 2, NONE, (1, (1, 2), 8)),
        ((1, 2), (2,), 2, NO_PREFERRED, (2, (2,), 7)),
        ((FENCED, 2), (FENCED, 2), 2, NO_PREFERRED, (2, (FENCED, 2), 7)),
        ((LEAVING, 2), (LEAVING, 2), 2, NO_PREFERRED, (2, (LEAVING, 2), 7)),
        ((GONE, 2), (GONE, 2), 2, NO_PREFERRED, (2, (GONE, 2), 7)),
        ((GONE, 2, 1), (1, 2), -1, NONE, (2, (1, 2), 8)),
        ((GONE, 2), (GONE,), -1, NO_PREFERRED, (-1, (GONE,), 7)),
        ((1, GONE), (GONE,), -1, NO_PREFERRED, (-1, (GONE,), 7)),
    ],
)
def test_preferred_elections(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    leader: int,
    code: ErrorCode,
    after: tuple[int, tuple[int, ...], int],
) -> None:
    image = cluster(partition(replicas, isr, leader))
    codes, image = decided(image, ElectLeaders(partitions=(("t", (0,)),)))
    found = image.topics["t"].partitions[0]
    assert (codes, (found.leader, found.isr, found.leader_epoch)) == ([code], after)
    assert found.leader_recovery_state == 0


@pytest.mark.parametrize(
    ("replicas", "isr", "leader", "code", "after"),
    [
        ((1, 2), (1, 2), 2, NOT_NEEDED, (2, (1, 2), 0)),
        ((1, 2), (2,), -1, NONE, (2, (2,), 0)),
        ((GONE, 2, 1), (GONE,), -1, NONE, (2, (2,), RECOVERING)),
        ((FENCED, LEAVING, 6), (GONE,), -1, NONE, (6, (6,), RECOVERING)),
        ((FENCED, LEAVING, GONE), (GONE,), -1, NO_ELIGIBLE, (-1, (GONE,), 0)),
    ],
)
def test_unclean_elections(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    leader: int,
    code: ErrorCode,
    after: tuple[int, tuple[int, ...], int],
) -> None:
    image = cluster(partition(replicas, isr, leader))
    codes, image = decided(image, ElectLeaders(partitions=(("t", (0,)),), unclean=True))
    found = image.topics["t"].partitions[0]
    assert (codes, (found.leader, found.isr, found.leader_recovery_state)) == ([code], after)


def test_all_partitions_are_asked_for_without_those_that_need_nothing() -> None:
    image = cluster(
        partition((1, 2), (1, 2), 1), partition((1, 2), (1, 2), 2, 1), partition((GONE, 2), (2,), 2, 2)
    )  # fmt: skip
    result = decide(image, ElectLeaders(partitions=None), Rules())
    rows = [(each.partition, each.error.code if each.error else 0) for each in result.response]  # type: ignore[union-attr]
    assert rows == [(1, 0), (2, NO_PREFERRED)]
    assert len(result.records) == 1


def test_partitions_that_are_not_there_and_those_named_twice() -> None:
    image = cluster(partition((1, 2), (1, 2), 2))
    asked = ElectLeaders(partitions=(("t", (0, 0, 1, -1)), ("x", (0,))))
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes, image = decided(image, asked)
    assert codes == [NONE, NONE, missing, missing, missing]
    assert image.topics["t"].partitions[0].leader_epoch == 8, "one election"


Moved = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int, int]


def state(image: ClusterImage) -> Moved:
    """Replicas, ISR, adding, removing, leader, leader epoch."""
    found = image.topics["t"].partitions[0]
    return (
        found.replicas,
        found.isr,
        found.adding_replicas,
        found.removing_replicas,
        found.leader,
        found.leader_epoch,
    )


def move(image: ClusterImage, replicas: tuple[int, ...] | None, **more: Any) -> tuple[list[ErrorCode], ClusterImage]:
    wanted = Reassignment(topic="t", partition=0, replicas=replicas)
    rules = {"unclean_leader_election_enable": more.pop("unclean", False)}
    return decided(image, AlterReassignments(partitions=(wanted,), **more), **rules)


@pytest.mark.parametrize(
    ("target", "code", "after"),
    [
        ((1, 2), NONE, ((1, 2), (1, 2), (), (), 1, 7)),
        ((2, 1), NONE, ((2, 1), (1, 2), (), (), 1, 7)),
        ((1, 2, 6), NONE, ((1, 2, 6), (1, 2), (6,), (), 1, 7)),
        ((1, 6), NONE, ((1, 6, 2), (1, 2), (6,), (2,), 1, 7)),
        ((6, FENCED), NONE, ((6, FENCED, 1, 2), (1, 2), (FENCED, 6), (1, 2), 1, 7)),
        ((1,), NONE, ((1,), (1,), (), (), 1, 8)),
        ((2,), NONE, ((2,), (2,), (), (), 2, 8)),
        ((), BAD_REPLICAS, None),
        ((1, 1), BAD_REPLICAS, None),
        ((1, GONE), BAD_REPLICAS, None),
        ((1, -1), BAD_REPLICAS, None),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
    ],
)
def test_a_partition_at_rest_is_moved(target: tuple[int, ...] | None, code: ErrorCode, after: Moved | None) -> None:
    image = cluster(partition((1, 2), (1, 2), 1))
    codes, moved = move(image, target)
    assert codes == [code]
    assert state(moved) == (after or state(image))


@pytest.mark.parametrize(
    ("target", "code", "after"),
    [
        ((1, 6), NONE, ((1, 6, 2), (1, 2), (6,), (2,), 1, 7)),
        ((6, 1), NONE, ((6, 1, 2), (1, 2), (6,), (2,), 1, 7)),
        ((1, FENCED), NONE, ((1, FENCED, 2, 6), (1, 2), (FENCED,), (2, 6), 1, 7)),
        ((1, 2), NONE, ((1, 2), (1, 2), (), (), 1, 8)),
        (None, NONE, ((1, 2), (1, 2), (), (), 1, 8)),
        ((1, GONE), BAD_REPLICAS, None),
    ],
)
def test_a_partition_on_its_way_is_sent_elsewhere_or_back(
    target: tuple[int, ...] | None, code: ErrorCode, after: Moved | None
) -> None:
    image = cluster(partition((1, 6, 2), (1, 2), 1, adding_replicas=(6,), removing_replicas=(2,)))
    codes, moved = move(image, target)
    assert codes == [code]
    assert state(moved) == (after or state(image))


@pytest.mark.parametrize(
    ("rules", "configs", "code"),
    [
        (False, {}, BAD_REPLICAS),
        (True, {}, NONE),
        (False, {"unclean.leader.election.enable": "true"}, NONE),
        (True, {"unclean.leader.election.enable": "false"}, BAD_REPLICAS),
    ],
)
def test_taking_back_what_only_the_new_replicas_hold_may_lose_records(
    rules: bool, configs: dict[str, str], code: ErrorCode
) -> None:
    image = cluster(partition((6, 1, 2), (6,), 6, adding_replicas=(6,), removing_replicas=(2,)), **configs)
    codes, moved = move(image, None, unclean=rules)
    assert codes == [code]
    if code is NONE:
        assert state(moved) == ((1, 2), (1,), (), (), 1, 8)
    else:
        assert state(moved) == state(image)


def test_another_number_of_replicas_may_be_forbidden() -> None:
    image = cluster(partition((1, 6, 2), (1, 2), 1, adding_replicas=(6,), removing_replicas=(2,)))
    assert move(image, (1, 2, 6), may_change_factor=False)[0] == [BAD_FACTOR]
    assert move(image, (1, 2), may_change_factor=False)[0] == [NONE]
    assert move(image, (1, 2, 6), may_change_factor=True)[0] == [NONE]


def test_partitions_that_are_not_there_cannot_be_moved() -> None:
    wanted = tuple(Reassignment(topic=topic, partition=9, replicas=(1,)) for topic in ("t", "x"))
    codes, _ = decided(cluster(partition((1,), (1,), 1)), AlterReassignments(partitions=wanted))
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


nodes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 6]), min_size=1, max_size=5, unique=True).map(tuple)


@settings(max_examples=300, deadline=None)
@given(nodes, st.data(), st.booleans(), st.booleans())
def test_a_leader_is_active_and_in_sync_unless_records_may_be_lost(
    replicas: tuple[int, ...], data: st.DataObject, unclean: bool, preferred: bool
) -> None:
    isr = tuple(data.draw(st.lists(st.sampled_from(replicas), unique=True)))
    before = data.draw(st.sampled_from((*replicas, -1)))
    brokers = cluster().brokers
    leader, lost = elect(before, replicas, isr, brokers, unclean=unclean, preferred=preferred)
    clean = [node for node in replicas if node in isr and node in brokers and brokers[node].active]
    assert lost == (leader not in clean and leader != -1)
    if clean:
        assert leader in clean
        assert leader == before or before not in clean or preferred
    else:
        assert not lost or unclean
        assert leader == -1 or brokers[leader].active


@settings(max_examples=300, deadline=None)
@given(nodes, st.lists(nodes | st.none(), max_size=4), st.data())
def test_whatever_is_asked_for_a_partition_stays_sound(
    replicas: tuple[int, ...], targets: list[tuple[int, ...] | None], data: st.DataObject
) -> None:
    isr = tuple(data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    leader = data.draw(st.sampled_from((*isr, -1)))
    image = cluster(partition(replicas, isr, leader))
    for target in targets:
        (code,), image = move(image, target, unclean=data.draw(st.booleans()))
        found = image.topics["t"].partitions[0]
        assert len(set(found.replicas)) == len(found.replicas) > 0
        assert set(found.isr) <= set(found.replicas) and found.isr
        assert set(found.adding_replicas) | set(found.removing_replicas) <= set(found.replicas)
        assert not set(found.adding_replicas) & set(found.removing_replicas)
        assert found.leader == -1 or found.leader in found.isr
        if code is NONE and target is not None:
            assert set(found.replicas) - set(found.removing_replicas) == set(target)


# --- eligible leader replicas


def shrunk(before: PartitionImage, isr: tuple[int, ...], *, least: int = 2, **more: Any) -> PartitionImage:
    """What becomes of a partition when the ISR is to be this one."""
    image = cluster(before)
    record = changed(image.topics["t"], before, image.brokers, min_in_sync=least, isr=isr, **more)
    return before if record is None else partition_after(before, record)


def elr(found: PartitionImage) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    """ISR, ELR, who led last, leader."""
    return found.isr, found.eligible_leader_replicas, found.last_known_elr, found.leader


FULL = partition((1, 2, 6), (1, 2, 6), 1)
ONE_LEFT = partition((1, 2, 6), (6,), 6, eligible_leader_replicas=(1,))


@pytest.mark.parametrize(
    ("before", "isr", "more", "after"),
    [
        (FULL, (1, 2), {}, ((1, 2), (), (), 1)),
        (FULL, (2,), {}, ((2,), (1, 6), (), 2)),
        (FULL, (2,), {"least": 1}, ((2,), (), (), 2)),
        (FULL, (2,), {"lost": (1,)}, ((2,), (6,), (), 2)),
        (ONE_LEFT, (6, 2), {}, ((6, 2), (), (), 6)),
        (ONE_LEFT, (6,), {"least": 1}, ((6,), (), (), 6)),
        (ONE_LEFT, (), {"lost": (6,)}, ((1,), (), (), 1)),
        (ONE_LEFT, (), {"lost": (6, 1)}, ((), (), (6,), -1)),
        (ONE_LEFT, (), {"lost": (6, 1), "least": 1}, ((6,), (), (), 6)),
    ],
)
def test_who_leaves_an_isr_that_is_too_small_stays_eligible(
    before: PartitionImage, isr: tuple[int, ...], more: dict[str, Any], after: object
) -> None:
    assert elr(shrunk(before, isr, **more)) == after


@pytest.mark.parametrize(
    ("replicas", "isr", "eligible", "last", "least", "unclean", "after", "recovery"),
    [
        ((FENCED, 2, 1), (), (1, FENCED), (2,), 2, False, ((1,), (FENCED,), (), 1), 0),
        ((FENCED, 2, 1), (), (FENCED,), (2,), 2, False, ((), (FENCED,), (2,), -1), 0),
        ((FENCED, 2, 1), (), (FENCED,), (2,), 2, True, ((2,), (), (), 2), RECOVERING),
        ((1, 2, 6), (), (), (2,), 2, False, ((), (), (2,), -1), 0),
        ((1, 2, 6), (), (), (2,), 2, True, ((2,), (), (), 2), RECOVERING),
        ((1, 2, 6), (), (), (2,), 1, False, ((2,), (), (), 2), RECOVERING),
        ((1, 2, 6), (), (), (FENCED,), 1, False, ((), (), (), -1), 0),
        ((2,), (), (), (2,), 2, False, ((2,), (), (), 2), RECOVERING),
        ((FENCED, 2), (FENCED,), (2,), (), 2, False, ((2,), (FENCED,), (), 2), 0),
    ],
)
def test_who_leads_when_nobody_in_sync_can(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    eligible: tuple[int, ...],
    last: tuple[int, ...],
    least: int,
    unclean: bool,
    after: object,
    recovery: int,
) -> None:
    before = partition(replicas, isr, -1, eligible_leader_replicas=eligible, last_known_elr=last)
    found = shrunk(before, isr, least=least, unclean=unclean)
    assert elr(found) == after
    assert found.leader_recovery_state == recovery
    assert found.leader_epoch == before.leader_epoch + (found.leader >= 0)


def test_what_may_lose_records_is_told() -> None:
    image = cluster(
        partition((1, 2), (), -1, eligible_leader_replicas=(GONE,), last_known_elr=(2,)),
        partition((1, 2), (), -1, 1, eligible_leader_replicas=(1,)),
    )
    result = decide(image, ElectLeaders(partitions=None, unclean=True), Rules())
    (told,) = result.unclean
    assert (told.topic, told.partition, told.leader, told.leader_epoch) == ("t", 0, 2, 8)
    assert (told.isr_before, told.eligible_before) == ((), (GONE,))
    after = apply_batch(image, result.records).topics["t"].partitions
    assert [each.leader for each in after] == [2, 1]


def test_taking_back_a_move_falls_back_on_who_is_eligible() -> None:
    before = partition((6, 1, 2), (6,), 6, adding_replicas=(6,), eligible_leader_replicas=(2,))
    codes, image = move(cluster(before), None)
    assert codes == [NONE]
    assert elr(image.topics["t"].partitions[0]) == ((2,), (), (), 2)
