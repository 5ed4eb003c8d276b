"""What is wrong with a cluster, by what its brokers say"""

from dataclasses import replace

from tidemill.cluster.status import BrokerStatus, ClusterStatus, ControllerStatus, PartitionStatus, problems


def controller(node_id: int, ago_ms: int | None, *, leads: bool = False, voter: bool = True) -> ControllerStatus:
    return ControllerStatus(node_id=node_id, voter=voter, leads=leads, behind=0, caught_up_ms_ago=ago_ms)


def partition(name: str, leader: int, isr: tuple[int, ...], wanted: int | None = 2) -> PartitionStatus:
    return PartitionStatus(name=name, leader=leader, replicas=(1, 2, 3), isr=isr, min_insync_replicas=wanted)


WELL = ClusterStatus(
    cluster_id="c",
    leader_id=2,
    leader_epoch=7,
    brokers=tuple(BrokerStatus(node_id=node, address=f"b{node}:9092", rack=None, fenced=False) for node in (1, 2, 3)),
    controllers=(controller(1, 300), controller(2, 0, leads=True), controller(3, 9_000)),
    topics=1,
    partitions=3,
    unwell=(),
)


def test_nothing_is_wrong_with_one_that_is_well() -> None:
    assert problems(WELL) == []


def test_the_worst_is_told_first_and_each_partition_once() -> None:
    found = problems(
        replace(WELL, unwell=(partition("t-0", 1, (1, 2)), partition("t-1", 1, (1,)), partition("t-2", -1, (2, 3))))
    )
    assert found == [
        "1 partition has no leader: t-2; nothing is read or written there until brokers 2 or 3 can lead",
        "1 partition refuses acks=all, with fewer replicas in sync than min.insync.replicas: t-1; "
        "missing: brokers 2, 3",
        "1 partition has replicas that are not in sync: t-0; missing: broker 3",
    ]


def test_who_can_lead_is_one_of_the_replicas_where_the_isr_is_told_empty() -> None:
    alone = replace(partition("one-0", -1, ()), replicas=(2,))
    (found,) = problems(replace(WELL, unwell=(alone,)))
    assert found.endswith("one-0; nothing is read or written there until broker 2 can lead")


def test_a_replica_that_is_being_added_is_not_missed() -> None:
    growing = replace(partition("t-0", 1, (1, 2)), adding=(3,))
    lacking = replace(partition("t-1", 1, (1,), wanted=1), adding=(3,))
    assert problems(replace(WELL, unwell=(growing, lacking))) == [
        "1 partition has replicas that are not in sync: t-1; missing: broker 2",
        "1 partition has replicas that are being added: t-0; to: broker 3; "
        "'tidemill cluster balance' tells how far that is",
    ]


def test_a_leader_whose_topic_asks_for_no_more_refuses_nothing() -> None:
    (found,) = problems(replace(WELL, unwell=(partition("t-1", 1, (1,), wanted=1),)))
    assert "refuse" not in found
    (found,) = problems(replace(WELL, unwell=(partition("t-1", 1, (1,), wanted=None),)))
    assert "refuse" not in found, "a cluster that does not say what it asks for is not guessed at"


def test_of_many_partitions_some_are_named_and_all_counted() -> None:
    (found,) = problems(replace(WELL, unwell=tuple(partition(f"t-{number}", 1, (1, 2)) for number in range(8))))
    assert "8 partitions have" in found
    assert "t-0, t-1, t-2, t-3, t-4 and 3 more" in found


def test_a_fenced_broker_is_named() -> None:
    (found,) = problems(replace(WELL, brokers=(*WELL.brokers[:2], replace(WELL.brokers[2], fenced=True))))
    assert "broker 3" in found


def test_a_voter_that_is_away_says_how_many_more_may_go() -> None:
    (found,) = problems(replace(WELL, controllers=(*WELL.controllers[:2], controller(3, 10_001))))
    assert found == (
        "controller 3 does not take part in the quorum; 0 more of the 3 may go before nothing can be decided"
    )
    five = (*WELL.controllers[:2], controller(3, None), controller(4, 10), controller(5, 10))
    (found,) = problems(replace(WELL, controllers=five))
    assert "1 more of the 5" in found, "one that was never heard of is away"
    emptied = (*WELL.controllers[:2], controller(3, None), controller(3, 10, voter=False))
    _, found = problems(replace(WELL, controllers=emptied))
    assert found.startswith("node 3 follows with another folder than the one that it votes with"), "of another disk"
    observers = (*WELL.controllers, controller(9, None, voter=False))
    assert problems(replace(WELL, controllers=observers)) == [], "who has no vote is not missed by the quorum"


def test_a_quorum_without_a_leader_and_one_that_does_not_answer() -> None:
    (found,) = problems(replace(WELL, leader_id=-1, controllers=()))
    assert "start a majority" in found
    (found,) = problems(replace(WELL, leader_id=-1, controllers=(), trouble="it is down"))
    assert found.startswith("the quorum does not answer (it is down)")
