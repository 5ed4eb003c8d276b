"""Each request of a node finds who judges it, and a quorum of one loads none of that."""

import subprocess
import sys
import uuid

import pytest

from tidemill.broker.quorum.image import ClusterImage
from tidemill.broker.quorum.metadata import RegisterBroker, Registration, Rules, decide
from tidemill.broker.quorum.node_requests import (
    AlterPartition,
    BalanceResult,
    BrokerHeartbeat,
    ElectPreferred,
    FenceBrokers,
    HeartbeatResult,
    IsrResults,
    Mended,
    MendPartitions,
    NodeRequest,
    UnregisterBroker,
    Unregistration,
)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (BrokerHeartbeat(broker_id=1, broker_epoch=1, metadata_offset=1), HeartbeatResult),
        (AlterPartition(broker_id=1, broker_epoch=1, topics=()), IsrResults),
        (FenceBrokers(brokers=()), Mended),
        (MendPartitions(), Mended),
        (UnregisterBroker(broker_id=1), Unregistration),
        (ElectPreferred(), BalanceResult),
        (RegisterBroker(broker_id=1, incarnation_id=uuid.UUID(int=1), end_points=(), fenced=True), Registration),
    ],
)
def test_each_is_judged(request_: NodeRequest | RegisterBroker, answer: type[object]) -> None:
    assert isinstance(decide(ClusterImage(), request_, Rules()).response, answer)


def test_a_quorum_of_one_does_not_load_it() -> None:
    code = (
        "import sys, uuid, tidemill.broker.node\n"
        "from tidemill.broker.quorum.metadata import ClusterImage, RegisterBroker, Rules, decide\n"
        "decide(ClusterImage(), RegisterBroker(broker_id=1, incarnation_id=uuid.uuid4(), end_points=()), Rules())\n"
        "print([m for m in ('node_requests', 'brokers', 'in_sync', 'balance', 'sessions')"
        " if f'tidemill.broker.quorum.{m}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
