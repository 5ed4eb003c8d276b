"""What is written down of faults, with processes that are no brokers"""

from pathlib import Path

import pytest

from tests.faults import nemesis
from tests.faults.disks import Disk
from tests.faults.hosts import Hosts
from tests.faults.nemesis import Nemesis
from tests.faults.nodes import Node, Nodes
from tests.faults.plan import Fault

BLACKOUT = Fault(at=0, kind="blackout", nodes=(1, 2), seconds=0.1, amount=0)


def nodes(folder: Path, script: str) -> Nodes:
    hosts = Hosts([1, 2])
    made = {
        number: Node(
            number, ["sh", "-c", script], {}, folder / f"{number}.log", Disk(folder / f"{number}", 1), b"ready"
        )
        for number in hosts.nodes
    }
    return Nodes(hosts, made)


def starts(cluster: Nodes) -> list[tuple[int, float]]:
    """Who has started after a blackout, and in how many seconds."""
    cluster.begin()
    work = Nemesis(cluster.hosts, cluster, lambda _: None)
    try:
        work.carry_out([BLACKOUT])
    finally:
        for node in cluster.by_number.values():
            node.kill()
    assert [each.kind for each in work.done] == ["blackout"]
    return sorted((each.nodes[0], each.end - each.begin) for each in work.starts)


def test_a_node_is_starting_until_it_says_that_it_is_ready(tmp_path: Path) -> None:
    found = starts(nodes(tmp_path, "sleep 0.3; printf 'now re'; sleep 0.3; echo ady; exec sleep 60"))
    assert [number for number, _ in found] == [1, 2]
    assert all(seconds >= 0.5 for _, seconds in found)


def test_who_never_is_ready_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nemesis, "START_MAX_S", 0.5)
    cluster = nodes(tmp_path, "exec sleep 60")
    for number in cluster.by_number:
        (tmp_path / f"{number}.log").write_bytes(b"ready, the last time\n")
    assert [number for number, seconds in starts(cluster) if seconds >= 0.5] == [1, 2]


def test_who_ends_by_itself_has_no_more_time_to_start_than_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nemesis, "START_MAX_S", 0.5)
    found = starts(nodes(tmp_path, "sleep 0.1"))
    assert [number for number, seconds in found if seconds < 5] == [1, 2]
