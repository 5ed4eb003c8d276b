"""The states of a classic group, as a table

A group is Empty until somebody joins, then goes round: members join (PreparingRebalance), the leader assigns
(CompletingRebalance), work goes on (Stable), and any change of membership starts the round again. The table is the
whole truth: a move that is not in it is a bug of ours and raises.

>>> print(diagram())
Empty --rebalance--> PreparingRebalance
Empty --remove--> Dead
PreparingRebalance --joined--> CompletingRebalance
PreparingRebalance --left--> Empty
CompletingRebalance --assigned--> Stable
CompletingRebalance --rebalance--> PreparingRebalance
Stable --rebalance--> PreparingRebalance
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType


class GroupState(enum.StrEnum):
    """Where a group is in its round; the texts are those of DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Move(enum.StrEnum):
    """What can happen to a group as a whole."""

    REBALANCE = "rebalance"  # membership or subscription changed
    JOINED = "joined"  # every member that will come has joined
    LEFT = "left"  # the join phase ended with nobody in the group
    ASSIGNED = "assigned"  # the leader's assignment is in the log
    REMOVE = "remove"  # deleted, or expired with its last offset


TRANSITIONS: Mapping[GroupState, Mapping[Move, GroupState]] = MappingProxyType(
    {
        GroupState.EMPTY: {Move.REBALANCE: GroupState.PREPARING_REBALANCE, Move.REMOVE: GroupState.DEAD},
        GroupState.PREPARING_REBALANCE: {
            Move.JOINED: GroupState.COMPLETING_REBALANCE,
            Move.LEFT: GroupState.EMPTY,
        },
        GroupState.COMPLETING_REBALANCE: {
            Move.ASSIGNED: GroupState.STABLE,
            Move.REBALANCE: GroupState.PREPARING_REBALANCE,
        },
        GroupState.STABLE: {Move.REBALANCE: GroupState.PREPARING_REBALANCE},
        GroupState.DEAD: {},
    }
)


def after(state: GroupState, move: Move) -> GroupState:
    """The state that `move` leads to; raises AssertionError for a move that `state` does not know."""
    target = TRANSITIONS[state].get(move)
    assert target is not None, f"a group that is {state} cannot be moved by {move}"
    return target


def diagram() -> str:
    """The table as one arrow per line."""
    return "\n".join(
        f"{state} --{move}--> {target}" for state, moves in TRANSITIONS.items() for move, target in moves.items()
    )
