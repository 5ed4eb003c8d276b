from typing import get_args

from tests.broker.quorum.raft.member_world import voters
from tidemill.broker.quorum.raft import events
from tidemill.broker.quorum.raft.events import Resign, SnapshotInstalled, Tick, VotersChanged
from tidemill.broker.quorum.snapshot import SnapshotId


def test_events_are_values() -> None:
    assert Tick() == Tick()
    assert Resign() != Resign(successor=2)
    assert VotersChanged(offset=1, voters=voters(1)) == VotersChanged(offset=1, voters=voters(1))
    assert len({SnapshotInstalled(snapshot_id=SnapshotId(1, 2)), SnapshotInstalled(snapshot_id=SnapshotId(1, 2))}) == 1


def test_every_event_is_one() -> None:
    here = {each for each in vars(events).values() if isinstance(each, type) and each.__module__ == events.__name__}
    assert here == set(get_args(events.Event))
