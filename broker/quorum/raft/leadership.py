"""What a leader knows of those who fetch from it

A follower's fetch says what it holds durably. The high watermark (HW) is what a majority of the voters holds, the
leader's own durable end among them if it is a voter; it moves only to entries of the leader's own epoch, for an older
one that a majority holds may still lose against the log of another candidate. The same fetches keep the leader in its
place: without those of a majority there may be another one by now, and nobody who waits here would learn of it.
"""

import uuid
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from tidemill.broker.quorum.raft.messages import AddVoterRequest, ChangeRequest, FetchRequest, UpdateVoterRequest
from tidemill.broker.quorum.raft.voters import Voter, VoterSet

NEVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one replica has come; times in ms, NEVER (-1) where it has not happened in this epoch.

    `end` is what it holds durably, -1 until it has fetched; `log_end` where the leader's log ended at its last fetch.
    """

    node_id: int
    directory_id: uuid.UUID
    end: int = -1
    log_end: int = -1
    fetched_ms: int = NEVER
    caught_up_ms: int = NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFetch:
    """One that had nothing to get: answered when there is something, at the latest at the deadline."""

    token: Hashable
    request: FetchRequest
    known_high_watermark: int
    deadline_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterChange:
    """Another set of voters on its way. `proposed` is whether it is to be written, `offset` where that was.

    Under `token` somebody waits for it, None is nobody (any more). What is to be written cannot be taken back: it stays
    the only one on its way until it is committed.
    """

    token: Hashable | None
    request: ChangeRequest
    voters: VoterSet
    deadline_ms: int
    proposed: bool = False
    offset: int | None = None

    @property
    def is_answered_early(self) -> bool:
        """Whether who waits wants to know only that it is in the log."""
        request = self.request
        if isinstance(request, AddVoterRequest):
            return not request.ack_when_committed
        return isinstance(request, UpdateVoterRequest)


def observers(replicas: Iterable[Progress], voters: VoterSet, since_ms: int = NEVER) -> Iterator[Progress]:
    """Those who are no voters, by their directory too, and have fetched since: whoever has not is gone."""
    for each in replicas:
        if each.fetched_ms >= since_ms and not voters.is_voter(each.node_id, each.directory_id):
            yield each


class Leadership:
    """Mutable: one epoch of one leader. `epoch_start` is the offset of its first entry."""

    __slots__ = (
        "_others",
        "_others_of",
        "begun_ms",
        "change",
        "epoch_start",
        "held",
        "member",
        "replicas",
        "started_ms",
    )

    def __init__(self, member: Voter, *, epoch_start: int, now_ms: int) -> None:
        self.member = member
        self.epoch_start = epoch_start
        self.started_ms = now_ms
        self.replicas: dict[int, Progress] = {}
        self.begun_ms: dict[int, int] = {}  # when a voter has last confirmed that it knows of this epoch
        self.held: dict[Hashable, HeldFetch] = {}
        self.change: VoterChange | None = None
        self._others: list[Voter] = []
        self._others_of: VoterSet | None = None

    def counts_itself(self, voters: VoterSet) -> bool:
        """Whether the leader is a voter; one that is removed goes on for a while without."""
        return len(self.others(voters)) < len(voters)

    def progress(self, voter: Voter) -> Progress:
        """Of this voter, with the directory that it is a voter with."""
        found = self.replicas.get(voter.node_id)
        if found is None or not voter.is_at(found.directory_id):
            return Progress(node_id=voter.node_id, directory_id=voter.directory_id)
        return found

    def others(self, voters: VoterSet) -> list[Voter]:
        """All voters but the leader itself."""
        if voters is not self._others_of:
            me = self.member
            self._others = [each for each in voters if each.node_id != me.node_id or not each.is_at(me.directory_id)]
            self._others_of = voters
        return self._others

    def heard_of(self, request: FetchRequest, *, log_end: int, now_ms: int) -> None:
        """Somebody holds all below the offset it fetches from."""
        before = self.replicas.get(request.replica_id)
        if before is None or before.directory_id != request.replica_directory_id:
            before = Progress(node_id=request.replica_id, directory_id=request.replica_directory_id)
        caught_up_ms = before.caught_up_ms
        if request.offset >= log_end:
            caught_up_ms = now_ms
        elif 0 <= before.log_end <= request.offset:
            caught_up_ms = before.fetched_ms
        self.replicas[request.replica_id] = Progress(
            node_id=request.replica_id,
            directory_id=request.replica_directory_id,
            end=request.offset,
            log_end=log_end,
            fetched_ms=now_ms,
            caught_up_ms=caught_up_ms,
        )

    def heard_from(self, node_id: int, directory_id: uuid.UUID, now_ms: int) -> None:
        """Somebody is there, whatever it holds: its log parts from this one, or it is getting a snapshot."""
        before = self.replicas.get(node_id)
        if before is None or before.directory_id != directory_id:
            before = Progress(node_id=node_id, directory_id=directory_id)
        self.replicas[node_id] = Progress(
            node_id=node_id,
            directory_id=directory_id,
            end=before.end,
            log_end=before.log_end,
            fetched_ms=now_ms,
            caught_up_ms=before.caught_up_ms,
        )

    def forget_silent(self, voters: VoterSet, since_ms: int) -> None:
        """Drop those who are no voters and have not fetched since."""
        for each in list(observers(self.replicas.values(), voters)):
            if each.fetched_ms < since_ms:
                del self.replicas[each.node_id]

    def majority_end(self, voters: VoterSet, durable_end: int) -> int:
        """What a majority of the voters holds durably, of this epoch; -1 where that is nothing yet."""
        ends = [self.progress(each).end for each in self.others(voters)]
        if self.counts_itself(voters):
            ends.append(durable_end)
        ends.sort(reverse=True)
        end = ends[voters.majority - 1]
        return end if end > self.epoch_start else -1

    def quorum_deadline_ms(self, voters: VoterSet, timeout_ms: int) -> int | None:
        """Until when the leader may believe that it is one; None is for ever, in a quorum of one."""
        needed = voters.majority - self.counts_itself(voters)
        if needed == 0:
            return None
        heard = [max(self.progress(each).fetched_ms, self.started_ms) for each in self.others(voters)]
        return sorted(heard, reverse=True)[needed - 1] + timeout_ms

    def begin_due_ms(self, voter: Voter, interval_ms: int) -> int:
        """When a voter is to be told that this epoch has begun: at once, then whenever it did not fetch for so long."""
        last = max(self.progress(voter).fetched_ms, self.begun_ms.get(voter.node_id, NEVER))
        return self.started_ms if last == NEVER else last + interval_ms

    def successors(self, voters: VoterSet) -> tuple[tuple[int, uuid.UUID], ...]:
        """The other voters, those that hold most first."""
        ranked = sorted(self.others(voters), key=lambda each: (-self.progress(each).end, each.node_id))
        return tuple((each.node_id, each.directory_id) for each in ranked)

    def is_caught_up(self, voter: Voter, since_ms: int) -> bool:
        """Whether a replica had all there was at some moment since."""
        found = self.replicas.get(voter.node_id)
        if found is None or found.directory_id != voter.directory_id or found.caught_up_ms == NEVER:
            return False
        return found.caught_up_ms >= since_ms

    def may_be_proposed(self, change: VoterChange, since_ms: int) -> bool:
        """Whether a change can go into the log: a voter that is added has caught up first, and answers."""
        if not isinstance(change.request, AddVoterRequest):
            return True
        voter = change.request.voter
        return self.is_caught_up(voter, since_ms) and voter.node_id in self.begun_ms

    def deadlines(self) -> Iterable[int]:
        """When somebody who waits has waited long enough."""
        yield from (each.deadline_ms for each in self.held.values())
        if self.change is not None and self.change.token is not None:
            yield self.change.deadline_ms
