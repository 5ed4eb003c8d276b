"""A worker that has everything, where it can log in to no group

Where our own client cannot log in (SASL) a worker cannot be a member of a group, so it runs everything itself. Of two
such workers the one that started later stays: each claims the topics in the status topic before it begins, and who
finds another claim behind its own ends with a line that says so.

It looks to the herder like a seat in a group of one.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import structlog

from tidemill.connect.group.machine import Allow
from tidemill.connect.group.seat import GroupRefused, GroupSettings, Herding, Rounds
from tidemill.connect.herder.placement import Instance
from tidemill.connect.stores import WorkerClaim

log = structlog.get_logger("tidemill.connect.group")

WriteClaim = Callable[[WorkerClaim], Awaitable[None]]
"""Returns when the claim has been read back."""


def taken_over(rival: WorkerClaim, group: str) -> GroupRefused:
    """Somebody outside the group does its work now."""
    return GroupRefused(
        f"another worker ({rival.worker_id}, generation {rival.generation}) has taken over the topics of "
        f"group {group!r}; give each worker a group and topics of its own"
    )


class Alone:
    """The seat of a worker that has everything."""

    def __init__(
        self,
        settings: GroupSettings,
        herder: Herding,
        write: WriteClaim,
        last_claim: Callable[[], WorkerClaim | None],
        why: str,
    ) -> None:
        self.url = settings.url
        self.rounds = Rounds()
        self.seated = asyncio.Event()
        self.left = asyncio.Event()
        self.trouble = self.behind = ("", 0)
        self.unsettled_ms = self.settled_ms = None
        self._settings = settings
        self._herder = herder
        self._write = write
        self._last_claim = last_claim
        self._why = why
        self._life = secrets.token_hex(16)
        self._generation = 0
        self._allowed: frozenset[Instance] | None = None
        self._stopping = False
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Claim everything, and keep it until `stop` has been heard or another claims it; raises GroupRefused."""
        group, worker_id = self._settings.group, self._settings.worker_id
        claim = WorkerClaim(
            worker_id=worker_id, generation=self._herder.generation_heard + 1, life=self._life, group=group
        )
        await self._write(claim)
        log.warning("this worker has no group, and no other may be started on its topics", reason=self._why)
        self._generation = claim.generation
        self.look()
        self.seated.set()
        while not self.left.is_set():
            rival = self._last_claim()
            if rival is not None and rival.life != self._life:
                raise taken_over(rival, group)
            await self._changed.wait()
            self._changed.clear()

    def stop(self) -> None:
        """End in order."""
        self._stopping = True
        self.look()

    def look(self) -> None:
        """Something may have changed at the herder."""
        if not self._generation:
            return
        wanted = frozenset[Instance]() if self._stopping else self._herder.wanted()
        if wanted != self._allowed:
            self._allowed = wanted
            self._herder.allow(Allow(generation=self._generation, instances=wanted, leads=True))
        if self._stopping and not self._herder.running():
            self.left.set()
        self._changed.set()

    # ----------------------------------------------------------------- who asks

    @property
    def is_leader(self) -> bool:
        """Whether it has claimed everything."""
        return self._generation > 0

    holds_lease = is_leader

    @property
    def leader_url(self) -> str | None:
        """Its own address."""
        return self.url if self._generation else None

    @property
    def phase(self) -> str:
        """As of a group of one."""
        return "stable" if self._generation else "joining"

    @property
    def assigned(self) -> dict[Instance, str]:
        """Everything is its own."""
        return dict.fromkeys(self._allowed or (), self.url)

    @property
    def workers(self) -> dict[str, str]:
        """Itself."""
        return {self._life: self.url} if self._generation else {}

    @property
    def generation(self) -> int:
        """Of its claim."""
        return self._generation

    def holder_url(self, connector: str, task: int | None = None) -> str | None:
        """Its own address."""
        return self.leader_url

    def others_hold(self, connector: str) -> bool:
        """Nobody else does anything."""
        return False
