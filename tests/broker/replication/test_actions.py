from tidemill.broker.replication.actions import Follow, ProposeIsr, RefuseWaiting, Truncate
from tidemill.core.error_code import ErrorCode


def test_actions_are_values() -> None:
    assert Follow(leader=1, leader_epoch=2) == Follow(leader=1, leader_epoch=2)
    assert Truncate(offset=5, lost=0) != Truncate(offset=5, lost=1)
    assert len({RefuseWaiting(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)} | {RefuseWaiting(error=ErrorCode.NONE)}) == 2
    proposal = ProposeIsr(isr=(1, 2), broker_epochs=(-1, 7), leader_epoch=3, partition_epoch=4)
    assert dict(zip(proposal.isr, proposal.broker_epochs, strict=True)) == {1: -1, 2: 7}
