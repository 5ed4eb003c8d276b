"""A group's claim to its topics

Whoever does not know of a group cannot be told by it: a worker without one, or of a version that had none, or one of
another group. Both would do everything that the topics want, twice. So the leader writes into the status topic that
the topics are its group's, and of several claims the last one is right, as among workers without a group (`alone`).
Who has read its group's claim, and then another behind it, ends with a line that says so.

Every start of every worker of a group has the same claim, so only one group after another writes a new one.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from tidemill.connect.group.alone import WriteClaim, taken_over
from tidemill.connect.stores import WorkerClaim
from tidemill.connect.topic_log import TopicLogError

log = structlog.get_logger("tidemill.connect.group")


class Board(Protocol):
    """The last claim that was read."""

    claim: WorkerClaim | None


class GroupClaim:
    """The claim of one group, as one of its workers sees it."""

    def __init__(
        self, group: str, worker_id: str, board: Board, write: WriteClaim, leads: Callable[[], int | None]
    ) -> None:
        """`leads` tells the generation of this worker's assignment while it leads."""
        self._group = group
        self._worker_id = worker_id
        self._life = f"group {group}"
        self._board = board
        self._write = write
        self._leads = leads
        self._changed = asyncio.Event()

    def look(self) -> None:
        """Somebody has claimed the topics, or this worker may lead now."""
        self._changed.set()

    async def keep(self) -> None:
        """Claim the topics if they are not the group's; raises GroupRefused when another has taken them over."""
        has_claimed = False
        while True:
            claim, generation = self._board.claim, self._leads()
            if claim is not None and claim.life == self._life:
                has_claimed = True
            elif claim is not None and has_claimed:
                raise taken_over(claim, self._group)
            elif generation is not None:
                has_claimed = await self._claim(generation)
                if has_claimed:
                    continue
            await self._changed.wait()
            self._changed.clear()

    async def _claim(self, generation: int) -> bool:
        claim = WorkerClaim(worker_id=self._worker_id, generation=generation, life=self._life, group=self._group)
        try:
            await self._write(claim)
        except TopicLogError as error:
            log.warning("topics not claimed yet", group=self._group, reason=str(error))
            return False
        return True
