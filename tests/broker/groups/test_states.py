"""The table of group states."""

import pytest

from tidemill.broker.groups.states import TRANSITIONS, GroupState, Move, after


def test_every_move_in_the_table_leads_where_it_says() -> None:
    for state, moves in TRANSITIONS.items():
        for move, target in moves.items():
            assert after(state, move) is target


def test_every_other_move_is_a_bug() -> None:
    for state in GroupState:
        for move in Move:
            if move not in TRANSITIONS[state]:
                with pytest.raises(AssertionError):
                    after(state, move)


def test_every_state_is_reachable_and_only_dead_is_final() -> None:
    reachable = {GroupState.EMPTY} | {target for moves in TRANSITIONS.values() for target in moves.values()}
    assert reachable == set(GroupState)
    assert [state for state, moves in TRANSITIONS.items() if not moves] == [GroupState.DEAD]
