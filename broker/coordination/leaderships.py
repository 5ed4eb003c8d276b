"""Which partitions of its topic a coordinator takes up, image by image

A partition is taken up when this broker begins to lead it and given up when it leads no more. A leader that is chosen
again keeps what it has, for nobody else can have led in between: epochs are counted one by one, so where one is missing
here somebody may have, and the partition is taken up anew. So it is when the topic is another one of the same name.

A shard is one partition in one leadership; its states are a table:

>>> print(diagram())
loading --loaded--> active
loading --failed--> failed
loading --given up--> over
active --failed--> failed
active --given up--> over
failed --given up--> over
"""

import enum
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tidemill.broker.quorum.image import TopicImage


class ShardState(enum.StrEnum):
    """What a shard can do."""

    LOADING = "loading"  # its log is being read, or not here yet
    ACTIVE = "active"  # it knows what its log says, and answers
    FAILED = "failed"  # it does not know; its partition is to be taken up anew
    OVER = "over"


class ShardMove(enum.StrEnum):
    """What can happen to a shard."""

    LOADED = "loaded"
    FAILED = "failed"
    GIVEN_UP = "given up"


TRANSITIONS: Mapping[ShardState, Mapping[ShardMove, ShardState]] = MappingProxyType(
    {
        ShardState.LOADING: {
            ShardMove.LOADED: ShardState.ACTIVE,
            ShardMove.FAILED: ShardState.FAILED,
            ShardMove.GIVEN_UP: ShardState.OVER,
        },
        ShardState.ACTIVE: {ShardMove.FAILED: ShardState.FAILED, ShardMove.GIVEN_UP: ShardState.OVER},
        ShardState.FAILED: {ShardMove.GIVEN_UP: ShardState.OVER},
        ShardState.OVER: {},
    }
)


def after(state: ShardState, move: ShardMove) -> ShardState:
    """The state that `move` leads to; raises AssertionError for a move that `state` does not know."""
    target = TRANSITIONS[state].get(move)
    assert target is not None, f"a shard that is {state} cannot be moved by {move}"
    return target


def diagram() -> str:
    """The table as one arrow per line."""
    return "\n".join(
        f"{state} --{move}--> {target}" for state, moves in TRANSITIONS.items() for move, target in moves.items()
    )


class Leadership(NamedTuple):
    """In which partition of which topic, and in which epoch."""

    topic_id: uuid.UUID
    leader_epoch: int


class Turnover(NamedTuple):
    """What an image changes: which partitions to give up, first, which to take up, which to go on with."""

    given_up: tuple[int, ...]
    taken_up: Mapping[int, Leadership]
    goes_on: Mapping[int, Leadership]


def turnover(held: Mapping[int, Leadership], topic: TopicImage | None, node_id: int) -> Turnover:
    """From what is held to what `topic` says that broker `node_id` leads."""
    led = {
        each.partition: Leadership(topic.topic_id, each.leader_epoch)
        for each in (() if topic is None else topic.partitions)
        if topic is not None and each.leader == node_id
    }
    goes_on = {
        partition: now
        for partition, now in led.items()
        if (before := held.get(partition)) is not None
        and before.topic_id == now.topic_id
        and now.leader_epoch - before.leader_epoch in (0, 1)
    }
    return Turnover(
        given_up=tuple(partition for partition in held if partition not in goes_on),
        taken_up={partition: now for partition, now in led.items() if partition not in goes_on},
        goes_on=goes_on,
    )
