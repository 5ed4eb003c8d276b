"""A replica on a log of a simulated disk, and what is said of the partition elsewhere"""

from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.quorum.image import PartitionImage
from tidemill.broker.replication.actions import Follow, LogStartMoved, ProposeIsr, Truncate
from tidemill.broker.replication.partition import PartitionMachine
from tidemill.broker.replication.replica import Replica


def image(leader: int = 1, isr: tuple[int, ...] = (1,), epoch: int = 0, version: int = 0) -> PartitionImage:
    """Of replicas 1, 2 and 3, or of 1 alone where it is the ISR."""
    replicas = (1,) if (leader, isr) == (1, (1,)) and version == 0 else (1, 2, 3)
    return PartitionImage(
        partition=0, replicas=replicas, isr=isr, leader=leader, leader_epoch=epoch, partition_epoch=version
    )


def led(
    log: PartitionLog,
    first: PartitionImage | None = None,
    wishes: "list[ProposeIsr | Follow | Truncate | LogStartMoved] | None" = None,
    high_watermark: int = 0,
) -> Replica:
    """Of broker 1, which leads and is alone if nothing else is said; what it wants of others goes to `wishes`."""
    machine = PartitionMachine(1, held=log.held_offset, high_watermark=high_watermark)
    replica = Replica(log, machine, lambda _replica, wish: None if wishes is None else wishes.append(wish))
    replica.assign(first or image(), now_ms=0)
    return replica
