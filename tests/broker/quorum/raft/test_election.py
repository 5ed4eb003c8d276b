import uuid
from itertools import permutations

import pytest

from tidemill.broker.quorum.raft.election import NOBODY, ElectionState
from tidemill.core.types import ZERO_UUID

HERE = uuid.UUID(int=7)
THERE = uuid.UUID(int=8)


def test_at_first_nothing_is_known() -> None:
    state = ElectionState()
    assert (state.epoch, state.leader_id, state.voted_id) == (0, NOBODY, NOBODY)
    assert not state.has_leader
    assert not state.has_voted
    assert not state.has_voted_for(NOBODY + 1, ZERO_UUID)


@pytest.mark.parametrize(
    ("given", "asked", "same"),
    [(HERE, HERE, True), (HERE, THERE, False), (ZERO_UUID, THERE, True), (HERE, ZERO_UUID, True)],
)
def test_a_directory_that_nobody_knows_is_any(given: uuid.UUID, asked: uuid.UUID, same: bool) -> None:
    state = ElectionState(epoch=1, voted_id=2, voted_directory_id=given)
    assert state.has_voted_for(2, asked) is same
    assert not state.has_voted_for(3, asked)


@pytest.mark.parametrize(
    "wrong", [{"epoch": -1}, {"leader_id": -2}, {"voted_id": -2}, {"voted_directory_id": HERE}], ids=str
)
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        ElectionState(**wrong)  # type: ignore[arg-type]


def test_what_is_known_of_an_epoch_only_grows() -> None:
    voted = ElectionState(epoch=3, voted_id=1, voted_directory_id=HERE)
    led = ElectionState(epoch=3, voted_id=1, voted_directory_id=HERE, leader_id=2)
    story = [ElectionState(epoch=2, leader_id=1), ElectionState(epoch=3), voted, led, ElectionState(epoch=4)]
    for (i, earlier), (j, later) in permutations(enumerate(story), 2):
        assert later.may_follow(earlier) is (i < j), (earlier, later)
    assert voted.may_follow(voted)
    assert not ElectionState(epoch=3, voted_id=1, voted_directory_id=THERE).may_follow(voted)
    assert not ElectionState(epoch=3, voted_id=2).may_follow(voted)
    assert not ElectionState(epoch=3, voted_id=1, voted_directory_id=HERE, leader_id=3).may_follow(led)
