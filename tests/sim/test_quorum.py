"""The metadata quorum under faults, and faults of the machine itself that this finds

Each seed is a quorum of one to five voters, with observers, through some seconds of kills, power cuts, pauses, cut
networks, changes of voters and wiped disks; then the faults end, and everybody has to hold the same, soon.

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin.
"""

import os
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass

import pytest

from tests.sim.quorum import Host, QuorumSimulation, Violation, world_of
from tidemill.broker.quorum.raft.actions import Remember, Truncate
from tidemill.broker.quorum.raft.download import Download
from tidemill.broker.quorum.raft.election import ElectionState
from tidemill.broker.quorum.raft.leadership import Leadership
from tidemill.broker.quorum.raft.log_view import Divergence
from tidemill.broker.quorum.raft.machine import CommittedDataLost, QuorumMachine
from tidemill.broker.quorum.raft.messages import Response, VoteRequest
from tidemill.broker.quorum.raft.peers import Peers
from tidemill.broker.quorum.raft.voters import VoterEndpoint
from tidemill.broker.quorum.snapshot import SnapshotId

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "120"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
SHARES = 4
FAULTS_MS = 2_500


def run(
    seed: int,
    simulation: type[QuorumSimulation] = QuorumSimulation,
    machine: type[QuorumMachine] = QuorumMachine,
) -> QuorumSimulation:
    """One quorum; a failure names its seed."""
    world = world_of(seed, simulation, machine)
    try:
        world.run(FAULTS_MS)
        world.heal()
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return world


@pytest.mark.parametrize("share", range(SHARES))
def test_what_is_committed_stays_and_a_leader_is_found(share: int) -> None:
    seen = Counter[str]()
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        seen.update(run(seed).seen)
    if RUNS >= 120:
        often = (
            "elections",
            "leaders",
            "power cuts",
            "kills",
            "cuts",
            "sets of voters",
            "changes NONE",
            "snapshots",
            "voters written late",
        )
        now_and_then = ("rotten", "remembered", "truncations", "snapshots installed", "wipes", "appends refused")
        assert min(seen[name] for name in often) > RUNS / SHARES / 8, seen
        assert min(seen[name] for name in now_and_then) > RUNS / SHARES / 20, seen


def test_a_seed_tells_the_same_story_twice() -> None:
    stories = []
    for _ in range(2):
        world = world_of(9)
        world.trace = []
        world.run(FAULTS_MS)
        stories.append(world.trace)
    assert stories[0] == stories[1]
    assert len(stories[0]) > 100


# --- faults planted


class VotesBeforeItIsSynced(QuorumSimulation):
    """The election state is written, and synced some time later."""

    def persist(self, host: Host, state: ElectionState) -> None:
        self.durable_elections().setdefault(host.node_id, host.election)
        super().persist(host, state)
        self.at(self.spread(50), self.election_synced, host, state)

    def durable_elections(self) -> dict[int, ElectionState]:
        found: dict[int, ElectionState] = self.__dict__.setdefault("found", {})
        return found

    def election_synced(self, host: Host, state: ElectionState) -> None:
        durable = self.durable_elections().get(host.node_id)
        if durable is not None and state.may_follow(durable) and host.election.may_follow(state):
            self.durable_elections()[host.node_id] = state

    def lose(self, host: Host) -> None:
        super().lose(host)
        host.election = self.durable_elections().get(host.node_id, host.election)


class ListensForEver(Peers):
    """Forgets nothing of what it has asked."""

    def forget(self) -> None:
        pass


class TakesAnswersOfOldEpochs(QuorumMachine):
    """What was said to another role in another epoch is taken as if it was said now."""

    def _proceed(self) -> None:
        if not isinstance(self._peers, ListensForEver):
            self._peers = ListensForEver(self._settings)
        super()._proceed()

    def _is_of_now(self, response: Response) -> bool:
        return True


class CommitsOfOlderEpochs(QuorumMachine):
    """What a majority holds is committed, whoever wrote it."""

    def _advance(self, leadership: Leadership) -> None:
        start, leadership.epoch_start = leadership.epoch_start, -1
        super()._advance(leadership)
        leadership.epoch_start = start


class CountsWhatItHasNotSynced(QuorumMachine):
    """The leader's own end counts before it is durable."""

    def _advance(self, leadership: Leadership) -> None:
        end = leadership.majority_end(self.voters, self._log.offset_end)
        self.high_watermark = max(self.high_watermark, end)


@dataclass(frozen=True, slots=True, kw_only=True)
class HastyDownload(Download):
    """Whole with its first chunk."""

    @property
    def is_whole(self) -> bool:
        return True


class TakesAChunkForTheSnapshot(QuorumMachine):
    """Whatever came first is all there is."""

    def _begin_download(self, snapshot_id: SnapshotId) -> None:
        super()._begin_download(snapshot_id)
        if self._download is not None:
            self._download = HastyDownload(snapshot_id=snapshot_id)


class CountsItselfAfterItsRemoval(QuorumMachine):
    """A leader that is no voter any more is one of the majority."""

    def _advance(self, leadership: Leadership) -> None:
        super()._advance(leadership)
        if not leadership.counts_itself(self.voters):
            ends = [leadership.progress(each).end for each in self.voters]
            end = sorted([*ends, self._log.durable_end], reverse=True)[self.voters.majority - 1]
            if end > leadership.epoch_start:
                self.high_watermark = max(self.high_watermark, end)


class ChangesTwoVotersAtOnce(QuorumMachine):
    """The next change begins before the last one is committed."""

    def _may_change_voters(self, leadership: Leadership) -> bool:
        return self.high_watermark > leadership.epoch_start


class ForgetsAChangeOnItsWay(QuorumMachine):
    """What nobody waits for any more is taken for not written, which it may be a moment later."""

    def _see_to_change(self, leadership: Leadership) -> None:
        super()._see_to_change(leadership)
        if leadership.change is not None and leadership.change.token is None:
            leadership.change = None


class ChangesVotersBeforeItIsSettled(QuorumMachine):
    """A leader that does not know yet which change before is committed makes another one."""

    def _may_change_voters(self, leadership: Leadership) -> bool:
        return leadership.change is None and self.voters_offset < self.high_watermark


class TruncatesToTheHighWatermark(QuorumMachine):
    """Whoever finds a leader cuts what it does not know to be committed."""

    def _become_follower(self, epoch: int, leader_id: int, endpoints: tuple[VoterEndpoint, ...]) -> None:
        super()._become_follower(epoch, leader_id, endpoints)
        if self.high_watermark < self._log.offset_end:
            self._storing = True
            self._do(Truncate(offset=self.high_watermark))


class DivergesToTheHighWatermark(QuorumMachine):
    """Where the logs part, all goes that is not known to be committed."""

    def _cut(self, diverging: Divergence) -> None:
        super()._cut(Divergence(diverging.epoch, self.high_watermark))


class GoesByVotersThatWereCut(QuorumMachine):
    """The set that went with the end of the log still counts."""

    def _cut(self, diverging: Divergence) -> None:
        kept, self._voters = self._voters, deepcopy(self._voters)
        super()._cut(diverging)
        self._voters = kept


class BumpsTheEpochToAsk(QuorumMachine):
    """Whoever asks whether it would be voted for begins the epoch already."""

    def _become_prospective(self) -> None:
        self._remember(ElectionState(epoch=self.epoch + 1))
        super()._become_prospective()


class LeadsAgainAfterARestart(QuorumMachine):
    """Who was the leader takes itself for it."""

    def _see_to_the_end(self) -> None:
        if not self._successors:
            self._become_leader([self.node_id])
        else:
            super()._see_to_the_end()


class VotesForWhomItWouldHaveRefused(QuorumMachine):
    """Whoever has forgotten something gives its vote by what it has left."""

    def _would_vote(self, request: VoteRequest) -> bool:
        self.has_forgotten, forgotten = False, self.has_forgotten
        try:
            return super()._would_vote(request)
        finally:
            self.has_forgotten = forgotten

    def _vote(self, request: VoteRequest) -> bool:
        self.has_forgotten, forgotten = False, self.has_forgotten
        try:
            return super()._vote(request)
        finally:
            self.has_forgotten = forgotten


class RemembersTooSoon(QuorumMachine):
    """Whoever hears a leader takes its own log for whole."""

    def _see_whether_it_remembers(self) -> None:
        if self.has_forgotten and self._has_fetched:
            self.has_forgotten = False
            self._do(Remember())


class VotesForAShorterLog(QuorumMachine):
    """Whoever asks first gets the vote."""

    def _vote(self, request: object) -> bool:
        if self.election.has_voted or self.election.has_leader:
            return super()._vote(request)  # type: ignore[arg-type]
        self._become_unattached(
            ElectionState(epoch=self.epoch, voted_id=request.candidate_id)  # type: ignore[attr-defined]
        )
        return True

    def _would_vote(self, request: object) -> bool:
        return not self.leads


PLANTED_MACHINES = [
    TakesAnswersOfOldEpochs,
    CommitsOfOlderEpochs,
    CountsWhatItHasNotSynced,
    TakesAChunkForTheSnapshot,
    CountsItselfAfterItsRemoval,
    ChangesTwoVotersAtOnce,
    ForgetsAChangeOnItsWay,
    ChangesVotersBeforeItIsSettled,
    TruncatesToTheHighWatermark,
    DivergesToTheHighWatermark,
    GoesByVotersThatWereCut,
    BumpsTheEpochToAsk,
    LeadsAgainAfterARestart,
    VotesForAShorterLog,
    VotesForWhomItWouldHaveRefused,
    RemembersTooSoon,
]


@pytest.mark.parametrize(
    ("simulation", "machine"),
    [(VotesBeforeItIsSynced, QuorumMachine), *((QuorumSimulation, each) for each in PLANTED_MACHINES)],
)
def test_a_planted_fault_is_found(simulation: type[QuorumSimulation], machine: type[QuorumMachine]) -> None:
    for seed in range(1000):
        try:
            world_of(seed, simulation, machine).run(FAULTS_MS)
        except (Violation, CommittedDataLost):
            return
    pytest.fail("1000 seeds, and nothing was found")
