"""Every threshold about several brokers, and that whatever is not well comes with advice."""

from dataclasses import replace

import pytest

from tidemill.cluster.status import BrokerStatus, ClusterStatus, ControllerStatus, PartitionStatus
from tidemill.doctor import judge_cluster as judge
from tidemill.doctor.judge import GIB, Finding, Level
from tidemill.doctor.judge_cluster import BrokerDisk, TopicFacts

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL


def status(
    fenced: tuple[int, ...] = (),
    voters: int = 3,
    away: tuple[int, ...] = (),
    behind: int = 0,
    racks: tuple[str | None, ...] = (None, None, None),
    trouble: str = "",
    leader_id: int = 1,
) -> ClusterStatus:
    return ClusterStatus(
        cluster_id="c",
        leader_id=leader_id,
        leader_epoch=4,
        brokers=tuple(
            BrokerStatus(node_id=node, address=f"h:{node}", rack=rack, fenced=node in fenced)
            for node, rack in enumerate(racks, 1)
        ),
        controllers=tuple(
            ControllerStatus(
                node_id=node,
                voter=True,
                leads=node == leader_id,
                behind=0 if node == leader_id else behind,
                caught_up_ms_ago=None if node in away else 0,
            )
            for node in range(1, voters + 1)
        ),
        topics=1,
        partitions=1,
        unwell=(),
        trouble=trouble,
    )


def lacking(leader: int = 1, isr: tuple[int, ...] = (1, 2), wanted: int | None = 2) -> PartitionStatus:
    return PartitionStatus(name="t-0", leader=leader, replicas=(1, 2, 3), isr=isr, min_insync_replicas=wanted)


def topic(*replicas: tuple[int, ...], wanted: int | None = 2, name: str = "t") -> TopicFacts:
    return TopicFacts(name=name, replicas=replicas, min_in_sync=wanted)


THREE, RACKS = (1, 2, 3), ("a", "a", "b")


@pytest.mark.parametrize(
    ("finding", "level"),
    [
        (judge.brokers(status()), OK),
        (judge.brokers(status(fenced=(2,))), FAIL),
        (judge.quorum(status())[0], OK),
        (judge.quorum(status(trouble="nobody"))[0], FAIL),
        (judge.quorum(status(leader_id=-1))[0], FAIL),
        (judge.quorum(status(away=(2,)))[0], FAIL),
        (judge.quorum(status(voters=5, away=(2,)))[0], WARN),
        (judge.quorum(status(voters=1))[0], WARN),
        (judge.quorum(status(voters=4))[0], WARN),
        (judge.quorum(status(behind=999))[1], OK),
        (judge.quorum(status(behind=1_000))[1], WARN),
        (judge.in_sync([]), OK),
        (judge.in_sync([lacking(leader=-1)]), OK),
        (judge.in_sync([lacking()]), WARN),
        (judge.in_sync([lacking(isr=(1,))]), FAIL),
        (judge.in_sync([replace(lacking(), adding=(3,))]), OK),
        (judge.in_sync([replace(lacking(isr=(1,)), adding=(3,))]), FAIL),
        (judge.factors([topic(THREE)]), OK),
        (judge.factors([topic(THREE, (1,))]), WARN),
        (judge.min_in_sync([topic(THREE)])[0], OK),
        (judge.min_in_sync([topic(THREE, wanted=3)])[0], WARN),
        (judge.min_in_sync([topic(THREE, wanted=1)])[0], WARN),
        (judge.min_in_sync([topic((1, 2), wanted=1), topic((1,), wanted=1), topic(THREE, wanted=None)])[0], OK),
        (judge.racks(status(), [topic((1, 2))]), OK),
        (judge.racks(status(racks=("a", None, "b")), []), WARN),
        (judge.racks(status(racks=("a", "a", "a")), [topic((1, 2))]), OK),
        (judge.racks(status(racks=RACKS), [topic((1, 3)), topic((1,))]), OK),
        (judge.racks(status(racks=RACKS), [topic((1, 2))]), WARN),
        (judge.versions({1: {0: (3, 9)}, 2: {0: (3, 9)}}), OK),
        (judge.versions({1: {0: (3, 9)}, 2: {0: (3, 10)}}), WARN),
        (judge.clock_of_controller(None, 0), OK),
        (judge.clock_of_controller(-2_500, 500), OK),
        (judge.clock_of_controller(-2_501, 500), WARN),
        (judge.clock_of_controller(3_600_000, 0), FAIL),
    ],
)
def test_thresholds(finding: Finding, level: Level) -> None:
    assert finding.level is level, finding
    assert bool(finding.advice) is (level is not OK)
    assert finding.text


def test_what_is_missing_is_named() -> None:
    assert judge.brokers(status(fenced=(2, 3))).text.endswith("not heard of: 2, 3")
    assert "see broker 3:" in judge.in_sync([lacking()]).advice
    names = [topic((1,), name=f"t{number}") for number in range(5)]
    assert judge.factors(names).text.endswith("t0, t1, t2 and 2 more")
    assert judge.versions({1: {0: (3, 9)}, 2: {0: (3, 10)}, 3: {0: (3, 9)}}).text.endswith("1, 3 / 2")
    assert "no other may go" in judge.quorum(status(away=(3,)))[0].advice
    assert "behind this one" in judge.clock_of_controller(-60_000, 0).text


def test_each_disk_that_is_known_has_a_finding_of_its_own() -> None:
    def disk(node: int, free: int, total: int) -> BrokerDisk:
        return BrokerDisk(node_id=node, folder="/d", free_bytes=free, total_bytes=total)

    found = judge.disks([disk(1, 50 * GIB, 100 * GIB), disk(2, 5 * GIB, 100 * GIB), disk(3, -1, -1)])
    assert [(each.check, each.level) for each in found] == [
        ("disk space of broker 1", OK),
        ("disk space of broker 2", WARN),
    ]
