"""Logs that are to be made, and how many at once

Topics often come many at a time. Their logs share the syncs that make them durable; the first of them wait for the
last, so a round has about MADE_TOGETHER partitions.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from .config import LogConfig

MADE_TOGETHER = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLogs:
    """Partitions of a topic that are to have logs.

    `still_wanted` is asked when nothing else is being made or deleted: the topic may have gone meanwhile.
    """

    topic: str
    topic_id: uuid.UUID
    partitions: Sequence[int]
    config: LogConfig
    still_wanted: Callable[[], bool] = lambda: True


def together(wanted: Iterable[NewLogs]) -> Iterator[list[NewLogs]]:
    """`wanted` in rounds, taken from it as they are asked for; a round ends with the topic that fills it."""
    some: list[NewLogs] = []
    partitions = 0
    for each in wanted:
        some.append(each)
        partitions += len(each.partitions)
        if partitions >= MADE_TOGETHER:
            yield some
            some, partitions = [], 0
    if some:
        yield some
