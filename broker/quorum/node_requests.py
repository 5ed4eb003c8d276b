"""What only nodes of a cluster ask the active controller for

Which module judges which of these requests; one place, so that a quorum of one, which gets none of them, loads none of
it.
"""

from typing import TypeAlias

from tidemill.broker.quorum.balance import BalanceResult, ElectPreferred, elect_preferred
from tidemill.broker.quorum.brokers import (
    BrokerHeartbeat,
    FenceBrokers,
    HeartbeatResult,
    Mended,
    MendPartitions,
    UnregisterBroker,
    Unregistration,
    fence_brokers,
    heartbeat,
    mend_partitions,
    register_broker,
    unregister_broker,
)
from tidemill.broker.quorum.image import ClusterImage
from tidemill.broker.quorum.in_sync import AlterPartition, IsrResults, alter_partition
from tidemill.broker.quorum.metadata import RegisterBroker, Result
from tidemill.broker.quorum.rules import Rules

NodeRequest: TypeAlias = (
    BrokerHeartbeat | FenceBrokers | MendPartitions | UnregisterBroker | AlterPartition | ElectPreferred
)
NodeResponse: TypeAlias = HeartbeatResult | Mended | Unregistration | IsrResults | BalanceResult


def judge(image: ClusterImage, request: RegisterBroker | NodeRequest, rules: Rules) -> Result:
    """Judge `request` against `image`; changes nothing."""
    match request:
        case BrokerHeartbeat():
            return heartbeat(image, request, rules)
        case AlterPartition():
            return alter_partition(image, request, rules)
        case RegisterBroker():
            return register_broker(image, request, rules)
        case FenceBrokers():
            return fence_brokers(image, request, rules)
        case MendPartitions():
            return mend_partitions(image, rules)
        case UnregisterBroker():
            return unregister_broker(image, request)
        case ElectPreferred():
            return elect_preferred(image, request, rules)
