"""How far a worker has read its topics, told to another and waited for

Two workers that follow the same topics know the same as soon as they have read as far. A position is a few pairs of
partition and offset, as text for a header: what somebody has read when it answers. Whoever waits for a position knows
afterwards whatever the other one knew.

>>> encoded({"config": {0: 17}, "offset": {3: 5, 4: 9}})
'config:0=17;offset:3=5,4=9'
>>> decoded("config:0=17;offset:3=5,4=9")
{'config': {0: 17}, 'offset': {3: 5, 4: 9}}
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias

Offsets: TypeAlias = Mapping[int, int]
"""By partition, the last offset that was read."""

TEXT_MAX: Final = 64 * 1024
"""Of a header; room for thousands of partitions."""

CONFIG: Final = "config"
OFFSET: Final = "offset"


class FollowedTopic(Protocol):
    """A topic that is read as it grows; `topic_log.TopicLog` is the real one."""

    @property
    def applied(self) -> Offsets:
        """How far it was read."""
        ...

    async def reached(self, offsets: Offsets) -> None:
        """Return when it was read as far as this."""
        ...


class TopicPositions:
    """The positions of one worker."""

    def __init__(self, *, config: FollowedTopic, offset: FollowedTopic) -> None:
        self._topics = {CONFIG: config, OFFSET: offset}

    def position(self, *, offsets: bool) -> str:
        """How far this worker has read what should run and, if asked, source offsets."""
        roles = (CONFIG, OFFSET) if offsets else (CONFIG,)
        return encoded({role: self._topics[role].applied for role in roles})

    async def reached(self, position: str, timeout_s: float) -> bool:
        """Wait until this worker has read as far; False if it has not in time, or the text says nothing it knows."""
        wanted = decoded(position)
        if wanted is None:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                for role, offsets in wanted.items():
                    if role in self._topics:
                        await self._topics[role].reached(offsets)
        except TimeoutError:
            return False
        return True


def encoded(positions: Mapping[str, Offsets]) -> str:
    """A position as text."""
    return ";".join(
        f"{role}:{','.join(f'{partition}={offset}' for partition, offset in sorted(offsets.items()))}"
        for role, offsets in positions.items()
    )


def decoded(text: str) -> dict[str, dict[int, int]] | None:
    """A position from text; None for what is none.

    >>> decoded("config:0=x"), decoded("config"), decoded("config:")
    (None, None, {'config': {}})
    """
    if len(text) > TEXT_MAX:
        return None
    positions: dict[str, dict[int, int]] = {}
    for part in text.split(";"):
        role, sign, pairs = part.partition(":")
        if not sign:
            return None
        positions[role] = {}
        for pair in filter(None, pairs.split(",")):
            partition, _, offset = pair.partition("=")
            if not (_is_number(partition) and _is_number(offset)):
                return None
            positions[role][int(partition)] = int(offset)
    return positions


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
