"""Faults that worlds of several nodes have to find: wrong variants of what makes a cluster safe

Planted as those of one node are (`planted`), by replacing one method or two.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from tests.sim.world.invariants import Violation
from tests.sim.world.plan import Plan
from tests.sim.world.planted import Plant, gaps_are_stored, high_watermark_beyond_durable
from tests.sim.world.world import run
from tidemill.broker.handlers.fetch_nearby import NearbyFetch
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.producers import ProducerState
from tidemill.broker.log.store import LogStore
from tidemill.broker.node import StartRefused
from tidemill.broker.quorum import in_sync, incoming, leadership
from tidemill.broker.quorum.election_state import ElectionStateFile
from tidemill.broker.quorum.image import ImageError
from tidemill.broker.quorum.raft.download import Download
from tidemill.broker.quorum.raft.election import ElectionState
from tidemill.broker.quorum.raft.leadership import Leadership
from tidemill.broker.quorum.raft.voters import VoterSet
from tidemill.broker.quorum.rules import Rules
from tidemill.broker.replication.actions import Action, Truncate
from tidemill.broker.replication.partition import PartitionMachine, Role
from tidemill.broker.replication.replica import Replica
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError


def truncate_to_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """As Kafka did before KIP-101: whoever begins to follow cuts what it does not know to be committed."""
    real = PartitionMachine.assigned

    def assigned(machine: PartitionMachine, image: Any, *, log_end: int, now_ms: int) -> list[Action]:
        epoch = machine.leader_epoch
        actions = real(machine, image, log_end=log_end, now_ms=now_ms)
        if machine.role is Role.FOLLOWER and epoch != machine.leader_epoch and machine.high_watermark < log_end:
            actions.append(Truncate(offset=machine.high_watermark, lost=0))
        return actions

    patch.setattr(PartitionMachine, "assigned", assigned)


def high_watermark_of_a_stale_leader(patch: pytest.MonkeyPatch) -> None:
    """Whoever led takes all that it has for committed, when it hears of another leader and when it comes back."""
    assigned, begin = PartitionMachine.assigned, PartitionMachine.__init__

    def assigned_after_it_led(machine: PartitionMachine, image: Any, *, log_end: int, now_ms: int) -> list[Action]:
        led = machine.leads
        actions = assigned(machine, image, log_end=log_end, now_ms=now_ms)
        if led and not machine.leads:
            machine.high_watermark = machine.held
        return actions

    def begin_where_it_ended(machine: PartitionMachine, node_id: int, *, held: int, **more: Any) -> None:
        begin(machine, node_id, held=held, **{**more, "high_watermark": held})

    patch.setattr(PartitionMachine, "assigned", assigned_after_it_led)
    patch.setattr(PartitionMachine, "__init__", begin_where_it_ended)


def ack_before_isr_commit(patch: pytest.MonkeyPatch) -> None:
    """Producers are told as soon as the leader has a record on its disk."""
    patch.setattr(Replica, "pending", lambda replica, last_offset, _acks=-1, **_how: replica.log.pending(last_offset))


def vote_not_fsynced(patch: pytest.MonkeyPatch) -> None:
    """What reaches the disk is the epoch; who got the vote in it, and who leads, is in memory."""
    real = ElectionStateFile.store

    def store(file: ElectionStateFile, state: ElectionState) -> None:
        real(file, ElectionState(epoch=state.epoch))

    patch.setattr(ElectionStateFile, "store", store)


def stale_epoch_accepted(patch: pytest.MonkeyPatch) -> None:
    """A leader whose epoch is over may still say who is in sync, and followers and producers are not asked theirs."""
    real = in_sync.check
    stale = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST)

    def check(*args: Any) -> None:
        try:
            real(*args)
        except KafkaError as error:
            if error.code not in stale:
                raise

    patch.setattr(in_sync, "check", check)
    patch.setattr(PartitionMachine, "check_epoch", lambda _machine, _believed_epoch: None)


def elr_ignored(patch: pytest.MonkeyPatch) -> None:
    """Where nobody of the ISR is there, any replica will do, whether it is an eligible one or not."""
    real = leadership.elect

    def elect(leader: int, replicas: Sequence[int], *args: Any, **named: Any) -> leadership.Choice:
        return real(leader, replicas, *args, **{**named, "eligible": (), "unclean": True})

    patch.setattr(leadership, "elect", elect)


def lost_snapshot_chunk(patch: pytest.MonkeyPatch) -> None:
    """A snapshot of the metadata is taken for whole with its first chunk, and nobody looks whether it is."""
    patch.setattr(Download, "is_whole", property(lambda _download: True))
    patch.setattr(incoming, "check", lambda _data: None)


def removed_voter_that_leads_counts(patch: pytest.MonkeyPatch) -> None:
    """A leader that is no voter any more is one of the majority."""
    real = Leadership.majority_end

    def majority_end(leadership: Leadership, voters: VoterSet, durable_end: int) -> int:
        if leadership.counts_itself(voters):
            return real(leadership, voters, durable_end)
        ends = sorted([durable_end, *(leadership.progress(each).end for each in voters)], reverse=True)
        end = ends[voters.majority - 1]
        return end if end > leadership.epoch_start else -1

    patch.setattr(Leadership, "majority_end", majority_end)


def decision_before_majority(patch: pytest.MonkeyPatch) -> None:
    """A leader of the quorum takes for committed what is on its own disk."""

    def majority_end(leadership: Leadership, _voters: VoterSet, durable_end: int) -> int:
        return durable_end if durable_end > leadership.epoch_start else -1

    patch.setattr(Leadership, "majority_end", majority_end)


def one_in_sync_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Topics of three replicas are made that go on where one is in sync."""
    patch.setattr(Rules, "min_in_sync_of_new", lambda *_: None)


def followers_serve_all_that_they_have(patch: pytest.MonkeyPatch) -> None:
    """A consumer that reads near by is given what the follower has copied, committed or not."""
    real = NearbyFetch.read_one

    def read_one(fetch: NearbyFetch, read: Any, number: int, partition: Any, image: Any, may_block: bool) -> Any:
        found = fetch.broker.replicas.get(image.name, partition.partition)
        if found is None or found.machine.leads:
            return real(fetch, read, number, partition, image, may_block)
        shown = found.visible, found.high_watermark
        found.visible, found.high_watermark = found.log.held, found.log.held.offset
        try:
            return real(fetch, read, number, partition, image, may_block)
        finally:
            found.visible, found.high_watermark = shown

    patch.setattr(NearbyFetch, "read_one", read_one)


def logs_begin_anew_too_late(patch: pytest.MonkeyPatch) -> None:
    """A follower that was passed by deletions leaves out the first record that is left."""
    real = LogStore.begin_anew

    async def begin_anew(store: LogStore, log: PartitionLog, offset: int) -> PartitionLog:
        return await real(store, log, offset + (offset > log.log_end_offset))

    patch.setattr(LogStore, "begin_anew", begin_anew)


def deleted_records_are_shown(patch: pytest.MonkeyPatch) -> None:
    """Who is asked to delete records lets its log begin later on the disk, and shows them until it is started anew."""
    real = LogStore.delete_records

    async def delete_records(store: LogStore, log: PartitionLog, offset: int) -> int:
        before = log.log_start_offset
        start = await real(store, log, offset)
        log.log_start_offset = before
        return start

    patch.setattr(LogStore, "delete_records", delete_records)


def more_is_deleted_than_was_meant(patch: pytest.MonkeyPatch) -> None:
    """Whoever lets a log begin later, be it because its leader has, deletes all that is committed."""
    real = PartitionLog.advance_log_start
    patch.setattr(PartitionLog, "advance_log_start", lambda log, offset: real(log, max(offset, log.committed_offset)))


def records_are_lost_without_need(patch: pytest.MonkeyPatch) -> None:
    """Where an election may lose records, whoever lacks some is preferred to the ISR."""
    real = leadership.elect

    def elect(leader: int, replicas: Sequence[int], isr: Sequence[int], brokers: Any, **named: Any) -> Any:
        have = (*isr, *named.get("eligible", ()))
        behind = [each for each in replicas if each not in have and each in brokers and brokers[each].active]
        if named.get("unclean") and behind:
            return leadership.Choice(behind[0], True)
        return real(leader, replicas, isr, brokers, **named)

    patch.setattr(leadership, "elect", elect)


def deletions_are_told_before_followers_know(patch: pytest.MonkeyPatch) -> None:
    """Who asks for records to be deleted is answered when the leader has done it."""
    patch.setattr(PartitionMachine, "low_watermark", lambda machine, _live: machine.log_start)


def whatever_was_due_before_is_stored(patch: pytest.MonkeyPatch) -> None:
    """A batch that is not the next one is a duplicate, also where one before it is missing."""
    patch.setattr(ProducerState, "has", lambda _state, _batch: True)


PLANTED_IN_CLUSTERS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        truncate_to_high_watermark,
        high_watermark_of_a_stale_leader,
        ack_before_isr_commit,
        vote_not_fsynced,
        stale_epoch_accepted,
        elr_ignored,
        lost_snapshot_chunk,
        removed_voter_that_leads_counts,
        decision_before_majority,
        one_in_sync_is_enough,
        high_watermark_beyond_durable,
        followers_serve_all_that_they_have,
        gaps_are_stored,
        logs_begin_anew_too_late,
        deleted_records_are_shown,
        more_is_deleted_than_was_meant,
        records_are_lost_without_need,
        deletions_are_told_before_followers_know,
        whatever_was_due_before_is_stored,
    )
}


class Prey(NamedTuple):
    """A wrong variant and how it came to light; `worlds` is how many that took."""

    name: str
    worlds: int
    seconds: float
    failure: str

    @property
    def is_found(self) -> bool:
        """Whether it did."""
        return bool(self.failure)

    def __str__(self) -> str:
        outcome = f"found by world {self.worlds}: {self.failure}" if self.failure else f"NOT FOUND in {self.worlds}"
        return f"{self.name}: {outcome} ({self.seconds:.0f} s)"


def hunted(name: str, *, first: int = 0, seeds: int = 1000) -> Prey:
    """Live with a wrong variant, in a world of three nodes, in one of five, and so on, until one goes wrong."""
    begun = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        PLANTED_IN_CLUSTERS[name](patch)
        for seed in range(first, first + seeds):
            try:
                run(Plan(seed, 3 + 2 * (seed % 2)))
            except (Violation, StartRefused, ImageError) as failure:  # a node may find it in its own metadata
                return Prey(name, seed - first + 1, time.monotonic() - begun, str(failure).splitlines()[0][:160])
    return Prey(name, seeds, time.monotonic() - begun, "")
