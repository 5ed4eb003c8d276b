"""Standing back while the disk is full"""

import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.replication.replica_world import image
from tidemill.broker.full_disk import ROOM_AFTER_S, FullDisk, can_be_spared
from tidemill.broker.quorum.image import BrokerImage
from tidemill.broker.replication.partition import PartitionMachine


def logs(*refused: int) -> Any:
    return [SimpleNamespace(appends_refused=each) for each in refused]


def test_a_disk_is_full_from_a_refusal_until_there_was_none_for_a_while() -> None:
    now = [100.0]
    disk = FullDisk(lambda: now[0])
    assert not disk.look(logs(0, 0))
    assert disk.look(logs(0, 1))
    now[0] += ROOM_AFTER_S - 1
    assert disk.look(logs(1, 1)), "refused again"
    now[0] += ROOM_AFTER_S - 1
    assert disk.look(logs(1, 1))
    now[0] += 1
    assert not disk.look(logs(1, 1))
    assert not disk.look(logs(1)), "a topic is gone"
    assert disk.look(logs(1, 1))


def replica(leader: int, isr: tuple[int, ...], *, enough: int = 2, factor: int = 3) -> Any:
    machine = PartitionMachine(1, held=0, high_watermark=0)
    first = image(leader=leader, isr=isr, version=1)
    machine.assigned(replace(first, replicas=first.replicas[:factor]), log_end=0, now_ms=0)
    return SimpleNamespace(machine=machine, log=SimpleNamespace(config=SimpleNamespace(min_insync_replicas=enough)))


def brokers(*fenced: int) -> dict[int, BrokerImage]:
    terms: dict[str, Any] = {"epoch": 1, "incarnation_id": uuid.UUID(int=1), "end_points": (), "rack": None}
    return {node: BrokerImage(node_id=node, fenced=node in fenced, **terms) for node in (1, 2, 3)}


@pytest.mark.parametrize(
    ("spared", "partition", "fenced"),
    [
        (True, replica(1, (1, 2, 3)), ()),
        (True, replica(2, (1, 2, 3)), ()),
        (True, replica(2, (2,)), ()),  # it counts on this broker no more
        (False, replica(1, (1, 2, 3)), (3,)),
        (False, replica(2, (1, 2)), ()),
        (True, replica(2, (1, 2), enough=1), ()),
        (False, replica(1, (1,), enough=1), ()),
        (False, replica(1, (1,), factor=1), ()),
        (True, replica(1, (1, 2), enough=1, factor=2), ()),
    ],
)
def test_who_is_not_needed_can_be_spared(spared: bool, partition: Any, fenced: tuple[int, ...]) -> None:
    assert can_be_spared([partition], brokers(*fenced)) is spared
    assert can_be_spared([replica(2, (2,)), partition], brokers(*fenced)) is spared
