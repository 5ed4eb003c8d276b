"""A controller's place in the quorum of controllers

What a controller decides is true once the quorum has committed it. A `Member` says whether this node is the one that
decides, takes its decisions, and tells when they are committed. On a node by itself that is when they are on its disk
(`Alone`); among several it is when most of them have them on theirs.

Not here: what is decided (`controller`), and elections.
"""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidemill.broker.quorum.disk_thread import DiskThread
from tidemill.broker.quorum.records import MetadataRecord
from tidemill.broker.quorum.store import LEADER_EPOCH, MetadataStore
from tidemill.core.errors import UnsupportedVersion
from tidemill.core.runtime.clock import Clock
from tidemill.core.types import ZERO_UUID
from tidemill.core.wire.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """How far a member of the quorum, or an observer of it, is; -1 is not known."""

    node_id: int
    log_end_offset: int
    directory_id: uuid.UUID = ZERO_UUID
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    end_points: tuple[tuple[str, str, int], ...] = ()
    """Of a voter among several: name, host and port of where it listens for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """Who agrees on the metadata."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...] = ()


class Member(Protocol):
    """What a controller sees of its quorum. Satisfied by `Alone` and, among several, by a member that elects."""

    @property
    def leads(self) -> bool:
        """Whether this node is the active controller: it leads, and knows all that was committed before."""

    @property
    def leader_id(self) -> int:
        """The node that leads as far as is known here, -1 if none does."""

    async def commit(self, records: Sequence[MetadataRecord]) -> int:
        """Return when `records` are committed as one batch, the offset behind them; one call at a time.

        Raises MetadataStoreError and MetadataUnwritable when nothing of them is in the log, and NotController when
        another leads by now: then they may be committed all the same.
        """

    async def change_voters(self, message: Message) -> Message:
        """The answer to AddRaftVoter or RemoveRaftVoter; raises KafkaError."""

    def still(self) -> asyncio.Lock:
        """Held, it keeps the files of the log as they are, except for what the holder of it does."""

    def state(self) -> QuorumState:
        """Who agrees, and how far each is."""


class Alone:
    """The quorum of one: it always leads, and what is on its disk is committed."""

    leads = True

    def __init__(
        self, store: MetadataStore, *, clock: Clock, node_id: int, thread: DiskThread, directory_id: uuid.UUID
    ) -> None:
        self.leader_id = node_id
        self._store = store
        self._clock = clock
        self._thread = thread
        self._directory_id = directory_id
        self._turn = asyncio.Lock()

    async def commit(self, records: Sequence[MetadataRecord]) -> int:
        """Return when `records` are on the disk; raises MetadataStoreError, MetadataUnwritable."""
        end = self._store.append(records, self._clock.now_ms())
        await self._thread.run(self._store.sync)
        return end

    async def change_voters(self, message: Message) -> Message:
        """There is none beside this node; raises UnsupportedVersion."""
        raise UnsupportedVersion(
            f"node {self.leader_id} is a cluster by itself and gets no voters beside it: one that grows begins with "
            "controller.quorum.bootstrap.servers and 'tidemill broker format --standalone'"
        )

    def still(self) -> asyncio.Lock:
        """Nobody else writes: who commits nothing meanwhile needs no more."""
        return self._turn

    def state(self) -> QuorumState:
        """This node alone: it is always caught up. What is being written counts once it is on the disk."""
        now_ms = self._clock.now_ms()
        end = self._store.offset_end
        voter = QuorumReplica(
            node_id=self.leader_id,
            log_end_offset=end,
            directory_id=self._directory_id,
            last_fetch_ms=now_ms,
            last_caught_up_ms=now_ms,
        )
        return QuorumState(leader_id=self.leader_id, leader_epoch=LEADER_EPOCH, high_watermark=end, voters=(voter,))
