from typing import get_args

from tidemill.broker.quorum.raft import actions
from tidemill.broker.quorum.raft.actions import Append, Persist, Truncate
from tidemill.broker.quorum.raft.election import ElectionState


def test_actions_are_values() -> None:
    assert Truncate(offset=5) == Truncate(offset=5)
    assert Append(offset=5, records=b"a") != Append(offset=5, records=b"b")
    assert len({Persist(state=ElectionState()), Persist(state=ElectionState())}) == 1


def test_every_action_is_one() -> None:
    here = {each for each in vars(actions).values() if isinstance(each, type) and each.__module__ == actions.__name__}
    assert here == set(get_args(actions.Action))
