"""One member of the metadata quorum

Pure: it hears of messages, of time and of its log, and says what is to be done. KRaft's rules, which are Raft's with
the log pulled instead of pushed:

* An epoch has one leader, for a voter votes once in it, for somebody whose log has all that its own has, and remembers
  that on disk before it says so. Before anybody begins an epoch, a majority has said that it would vote for it
  (pre-vote, KIP-996), so that one who was merely cut off deposes nobody when it is back. Who has fetched from a leader
  since it last looked for one does not say so.
* Followers and observers fetch. Their offset says what they hold durably, and its epoch whether it is the leader's log
  that they hold; where the logs part, the follower cuts its own, by epochs and never at the high watermark.
* A leader writes a record of its own before anything else. When that is committed all that was there before is, and
  not earlier. It resigns when a majority has not fetched for a time and a half of what followers wait for it.
* The voters are those of the last set in the log. One comes or goes at a time, and only when the leader has committed
  something in its epoch (KIP-853). A leader that is removed goes on until that is committed, counts itself no more, and
  resigns.

* Whoever has lost something of its log that it had said to hold votes for nobody, and is no candidate, until it has
  from a leader whatever is committed.

Who restarts as the leader of an epoch does not lead it again: what it had appended may be gone. A quorum of one elects
itself at once.

Whatever is said to another epoch or role is not heard: changing either forgets what was asked (`peers`). An answer that
tells of a newer epoch, or of a leader of this one, is believed whatever it was asked for.

Not here: bytes (the log is a view of offsets and epochs), addresses (the voters' are handed on), the records.
"""

import uuid
from collections.abc import Hashable
from dataclasses import replace
from typing import Final

from tidemill.broker.quorum.raft import log_view
from tidemill.broker.quorum.raft.actions import (
    Action,
    Append,
    AppendVoters,
    BeginSnapshot,
    InstallSnapshot,
    Remember,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    StoreSnapshot,
    Truncate,
)
from tidemill.broker.quorum.raft.download import Download
from tidemill.broker.quorum.raft.election import NOBODY, ElectionState
from tidemill.broker.quorum.raft.events import (
    Answered,
    AppendRefused,
    Event,
    Failed,
    LogChanged,
    Received,
    Resign,
    SnapshotInstalled,
    SnapshotRefused,
    Tick,
    VotersChanged,
)
from tidemill.broker.quorum.raft.leadership import HeldFetch, Leadership, Progress, VoterChange
from tidemill.broker.quorum.raft.log_view import Divergence
from tidemill.broker.quorum.raft.member import Member, Role
from tidemill.broker.quorum.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    ChangeRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from tidemill.broker.quorum.raft.peers import UPDATES, Asked
from tidemill.broker.quorum.raft.voter_changes import Refusal, changed_voters, why_late
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint
from tidemill.broker.quorum.snapshot import SnapshotId
from tidemill.core.error_code import ErrorCode

SNAPSHOT_RETRY_MS_MAX: Final = 30_000
"""The longest before a snapshot is fetched again that could not be stored: somebody may have made room."""

REFUSALS: Final = 3
"""So often in a row nobody listens where the leader was before another one is looked for."""


class CommittedDataLost(Exception):
    """The leader's log parts from this one below what was committed here: one of the two disks has lied."""


class QuorumMachine(Member):
    """Mutable: changes by `step` only. What it shows holds after a step, when the actions of that are done."""

    # -- steps

    def step(self, event: Event, now_ms: int) -> list[Action]:
        """Take one event in; returns what is to be done, in order. Raises CommittedDataLost."""
        self._now = max(now_ms, self._now)
        self._actions = []
        self._hear(event)
        self._has_begun = self._has_begun or not isinstance(event, VotersChanged)
        if not self._has_begun:  # the log may have other voters than those it has been told of so far
            return self._actions
        seen = None
        while seen != self._changes:
            seen = self._changes
            self._proceed()
        self._voters.settle(self.high_watermark)
        return self._actions

    def _hear(self, event: Event) -> None:
        match event:
            case Tick():
                pass
            case Received():
                self._receive(event.token, event.request)
            case Answered():
                asked = self._peers.take(event.request_id)
                if asked is not None:
                    self._answered(asked, event.response)
            case Failed():
                asked = self._peers.take(event.request_id)
                if asked is not None:
                    self._failed(asked)
                    self._note_refusal(asked, event.refused)
            case LogChanged():
                self._storing = False
            case AppendRefused():
                self._storing = False
                self._peers.back_off(self.leader_id, self._now, self._settings.fetch_wait_max_ms)
            case VotersChanged():
                self._take_voters(event)
            case SnapshotInstalled():
                self._download, self._storing = None, False
                self._voters.truncate(event.snapshot_id.offset_end)
                self.high_watermark = max(self.high_watermark, event.snapshot_id.offset_end)
            case SnapshotRefused():
                self._download, self._storing = None, False
                self._voters.truncate(self._log.offset_end)  # it may have been cut for the snapshot before
                self._peers.back_off(self.leader_id, self._now, self._settings.fetch_wait_max_ms)
                again = self._refused_snapshot is not None and self._refused_snapshot[0] == event.snapshot_id
                count = self._refused_snapshot[1] + 1 if again and self._refused_snapshot is not None else 1
                self._refused_snapshot = event.snapshot_id, count, self._now
            case Resign():
                if self._leadership is not None and not self._is_alone:
                    self._resign(event.successor)

    def _proceed(self) -> None:
        """Do whatever is due in this role; called again when that changes it."""
        match self._role:
            case Role.LEADER:
                self._lead()
            case Role.FOLLOWER:
                self._follow()
            case Role.PROSPECTIVE | Role.CANDIDATE:
                self._campaign_on()
            case Role.RESIGNED:
                self._see_to_the_end()
            case _:
                self._look_for_leader()

    # -- what is due

    def _look_for_leader(self) -> None:
        if self._is_alone or (self._now >= self._deadline and self._may_campaign):
            self._become_prospective()
            return
        if self.is_voter and not self.has_forgotten:
            return
        if self._now >= self._deadline:
            self._deadline = self._now + self._election_timeout()
        known = {each.node_id: each.endpoints for each in self.voters if each.node_id != self.node_id}
        known.update(self._bootstrap)
        asked = [each for each in known if not self._peers.may_ask(each, self._now)]
        if known and not asked:
            node_id = sorted(known)[int(self._rng.random() * len(known))]
            self._ask(node_id, known[node_id], self._fetch_request())

    def _look_for_another(self) -> None:
        if self._may_campaign:
            self._become_prospective()
        else:
            self._become_unattached(self.election)

    def _follow(self) -> None:
        leader_id = self.election.leader_id
        if self._now >= self._deadline:
            self._look_for_another()
            return
        held = min(self._leader_high_watermark, self._log.durable_end)
        self.high_watermark = max(self.high_watermark, held)
        self._see_whether_it_remembers()
        self._tell_own_address(leader_id)
        if self._storing or not self._peers.may_ask(leader_id, self._now):
            return
        if self._download is not None:
            request = self._download.request(
                self._cluster_id, self.epoch, self.node_id, self.directory_id, self._settings.snapshot_bytes_max
            )
            self._ask(leader_id, self.leader_endpoints, request)
        elif self._log.durable_end == self._log.offset_end:
            self._ask(leader_id, self.leader_endpoints, self._fetch_request())

    def _see_whether_it_remembers(self) -> None:
        """A leader knows all that is committed when something of its own epoch is; whoever has that has missed nothing.

        It was not elected by this one, which has elected nobody since it forgot; and whatever this one had told the
        same leader before is below what that one says to be committed, or was not counted.
        """
        end = self._leader_high_watermark
        if not self.has_forgotten or not 0 < end <= self._log.durable_end:
            return
        if log_view.epoch_before(self._log, end) == self.epoch:
            self.has_forgotten = False
            self._do(Remember())

    def _tell_own_address(self, leader_id: int) -> None:
        """Have the voters know this one as it is; beside the fetches, which the leader may need to take it in."""
        me = self._own_news
        if me is not None and self._has_fetched and self._peers.may_ask(UPDATES, self._now):
            request = UpdateVoterRequest(cluster_id=self._cluster_id, epoch=self.epoch, voter=me)
            self._ask(leader_id, self.leader_endpoints, request, way=UPDATES)

    def _campaign_on(self) -> None:
        campaign = self._campaign
        assert campaign is not None
        if campaign.is_won(self.voters):
            if campaign.pre_vote:
                self._become_candidate()
            else:
                self._become_leader(sorted(campaign.granted))
            return
        if self._now >= self._deadline:
            self._look_for_another()
            return
        if not campaign.lost and campaign.is_hopeless(self.voters):
            campaign.lost = True
            self._deadline = self._now + self._backoff()
        if campaign.lost:
            return
        for voter in self.voters:
            if not campaign.has_answered(voter.node_id) and self._peers.may_ask(voter.node_id, self._now):
                self._ask(voter.node_id, voter.endpoints, self._vote_request(voter, pre_vote=campaign.pre_vote))

    def _lead(self) -> None:
        leadership = self._leadership
        assert leadership is not None
        self._advance(leadership)
        self._see_to_change(leadership)
        removed = not leadership.counts_itself(self.voters) and self.voters_offset < self.high_watermark
        deadline = leadership.quorum_deadline_ms(self.voters, self._settings.check_quorum_timeout_ms)
        if removed or (deadline is not None and self._now >= deadline):
            self._resign()
            return
        for held in list(leadership.held.values()):
            news = self._log.offset_end > held.request.offset or self.high_watermark > held.known_high_watermark
            if news or self._now >= held.deadline_ms:
                del leadership.held[held.token]
                self._answer_fetch(held.token, held.request)
        for voter in leadership.others(self.voters):
            due = leadership.begin_due_ms(voter, self._settings.fetch_timeout_ms // 2)
            if self._now >= due and self._peers.may_ask(voter.node_id, self._now):
                self._ask(voter.node_id, voter.endpoints, self._begin_request(voter))

    def _advance(self, leadership: Leadership) -> None:
        end = leadership.majority_end(self.voters, self._log.durable_end)
        self.high_watermark = max(self.high_watermark, end)

    def _see_to_change(self, leadership: Leadership) -> None:
        self._see_to_own_address(leadership)
        change = leadership.change
        if change is None:
            return
        recently = self._now - self._settings.fetch_timeout_ms
        if change.offset is not None and self.high_watermark > change.offset:
            leadership.change = None
            self._answer_change(change, ErrorCode.NONE)
        elif change.offset is not None and change.is_answered_early and change.token is not None:
            self._answer_change(change, ErrorCode.NONE)
            leadership.change = replace(change, token=None)
        elif change.token is not None and self._now >= change.deadline_ms:
            why = why_late(change, self._fetched_of(change), self.high_watermark)
            self._answer_change(change, ErrorCode.REQUEST_TIMED_OUT, why)
            leadership.change = replace(change, token=None) if change.proposed else None
        elif not change.proposed and leadership.may_be_proposed(change, recently):
            leadership.change = replace(change, proposed=True)
            self._do(AppendVoters(epoch=self.epoch, voters=change.voters))
        elif not change.proposed and isinstance(change.request, AddVoterRequest):
            self._call_on(leadership, change.request.voter)

    def _call_on(self, leadership: Leadership, voter: Voter) -> None:
        """See that somebody who is to be a voter answers as such, at the address that the others will ask it at."""
        if voter.node_id not in leadership.begun_ms and self._peers.may_ask(voter.node_id, self._now):
            self._ask(voter.node_id, voter.endpoints, self._begin_request(voter))

    def _see_to_own_address(self, leadership: Leadership) -> None:
        """A leader that the voters know under another address changes that as its followers ask it to."""
        me = self._own_news
        if me is not None and self._may_change_voters(leadership):
            request = UpdateVoterRequest(cluster_id=self._cluster_id, epoch=self.epoch, voter=me)
            leadership.change = VoterChange(
                token=None, request=request, voters=self.voters.updating(me), deadline_ms=self._now
            )

    def _answer_change(self, change: VoterChange, error: ErrorCode, message: str | None = None) -> None:
        if change.token is not None:
            self._reply(change.token, error, message)

    def _fetched_of(self, change: VoterChange) -> Progress | None:
        """What is known of a voter that is to be added."""
        if not isinstance(change.request, AddVoterRequest):
            return None
        found = self.replicas.get(change.request.voter.node_id)
        return found if found is not None and found.directory_id == change.request.voter.directory_id else None

    def _see_to_the_end(self) -> None:
        if self._now >= self._deadline or (self._is_alone and not self._successors):
            self._look_for_another()
            return
        for voter in self.voters:
            if voter.node_id in (self.node_id, *self._told_end) or not self._peers.may_ask(voter.node_id, self._now):
                continue
            request = EndQuorumEpochRequest(
                cluster_id=self._cluster_id,
                epoch=self.epoch,
                leader_id=self.node_id,
                preferred_candidates=self._successors,
                leader_endpoints=self._endpoints,
            )
            self._ask(voter.node_id, voter.endpoints, request)

    # -- requests

    def _receive(self, token: Hashable, request: Request) -> None:
        foreign = self._cluster_id is not None and request.cluster_id not in (None, self._cluster_id)
        error = ErrorCode.INCONSISTENT_CLUSTER_ID if foreign else ErrorCode.NONE
        match request:
            case VoteRequest():
                self._receive_vote(token, request, error or self._vote_error(request))
            case FetchRequest():
                self._receive_fetch(token, request, error or self._fetcher_error(request))
            case FetchSnapshotRequest():
                self._receive_fetch_snapshot(token, request, error or self._fetcher_error(request))
            case BeginQuorumEpochRequest():
                self._reply(token, error or self._receive_begin(request))
            case EndQuorumEpochRequest():
                self._reply(token, error or self._receive_end(request))
            case _:
                self._receive_change(token, request, error)

    def _vote_error(self, request: VoteRequest) -> ErrorCode:
        """Why a request for a vote is not even looked at."""
        if request.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        written_later = request.last_epoch > request.epoch - (not request.pre_vote)
        if request.epoch < 0 or request.candidate_id < 0 or request.end_offset < 0 or written_later:
            return ErrorCode.INVALID_REQUEST
        if request.candidate_id == self.node_id:
            return ErrorCode.INVALID_REQUEST
        if not self._is_meant(request.voter_id, request.voter_directory_id):
            return ErrorCode.INVALID_VOTER_KEY
        if self._voters.is_configured and not (self.is_voter and request.candidate_id in self.voters):
            return ErrorCode.INCONSISTENT_VOTER_SET
        return ErrorCode.NONE

    def _is_meant(self, voter_id: int, directory_id: uuid.UUID) -> bool:
        """Whether a request is for this node with this disk, or does not say for whom it is."""
        if voter_id == NOBODY:
            return True
        return voter_id == self.node_id and Voter(node_id=voter_id, directory_id=directory_id).is_at(self.directory_id)

    def _receive_vote(self, token: Hashable, request: VoteRequest, error: ErrorCode) -> None:
        granted = False
        if error == ErrorCode.NONE:
            if request.epoch > self.epoch:
                self._become_unattached(ElectionState(epoch=request.epoch))
            granted = self._would_vote(request) if request.pre_vote else self._vote(request)
        response = VoteResponse(
            error=error,
            epoch=self.epoch,
            leader_id=self.leader_id,
            leader_endpoints=self.leader_endpoints,
            granted=granted,
        )
        self._do(Reply(token=token, response=response))

    def _would_vote(self, request: VoteRequest) -> bool:
        if self.has_forgotten or self._role is Role.LEADER or (self._role is Role.FOLLOWER and self._has_fetched):
            return False
        return log_view.is_up_to_date(self._log, request.last_epoch, request.end_offset)

    def _vote(self, request: VoteRequest) -> bool:
        """Give away the vote of this epoch, once; the same asks again where the answer was lost."""
        if self.election.has_voted:
            return self.election.has_voted_for(request.candidate_id, request.candidate_directory_id)
        if self.election.has_leader or self.has_forgotten:
            return False
        if not log_view.is_up_to_date(self._log, request.last_epoch, request.end_offset):
            return False
        state = ElectionState(
            epoch=self.epoch, voted_id=request.candidate_id, voted_directory_id=request.candidate_directory_id
        )
        self._become_unattached(state, self._election_timeout())
        return True

    def _receive_begin(self, request: BeginQuorumEpochRequest) -> ErrorCode:
        if request.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if not self._is_meant(request.voter_id, request.voter_directory_id):
            return ErrorCode.INVALID_VOTER_KEY
        if self._voters.is_configured and request.leader_id not in self.voters:
            return ErrorCode.INCONSISTENT_VOTER_SET
        if request.leader_id < 0 or request.leader_id == self.node_id:
            return ErrorCode.INVALID_REQUEST
        if request.epoch == self.epoch and self.election.leader_id not in (NOBODY, request.leader_id):
            return ErrorCode.INVALID_REQUEST  # an epoch has one leader
        self._hear_of(request.epoch, request.leader_id, request.leader_endpoints)
        return ErrorCode.NONE

    def _receive_end(self, request: EndQuorumEpochRequest) -> ErrorCode:
        """The leader is gone: whom it prefers begins at once, the others one after the other (KIP-595)."""
        if request.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.leader_id < 0 or request.leader_id == self.node_id:
            return ErrorCode.INVALID_REQUEST
        if request.epoch == self.epoch and self.election.leader_id not in (NOBODY, request.leader_id):
            return ErrorCode.INVALID_REQUEST
        self._hear_of(request.epoch, request.leader_id, request.leader_endpoints)
        if self.epoch <= self._over_epoch or self._role in (Role.LEADER, Role.CANDIDATE):
            return ErrorCode.NONE
        self._over_epoch = self.epoch
        ranked = [node_id for node_id, _ in request.preferred_candidates]
        place = ranked.index(self.node_id) if self.node_id in ranked else len(ranked)
        share = self._settings.election_backoff_max_ms // max(len(ranked), 1)
        self._become_unattached(self.election, place * share + int(self._rng.random() * share) if place else 0)
        return ErrorCode.NONE

    def _fetcher_error(self, request: FetchRequest | FetchSnapshotRequest) -> ErrorCode:
        if request.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self._leadership is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if request.replica_id < 0 or request.replica_id == self.node_id or request.bytes_max <= 0:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _receive_fetch(self, token: Hashable, request: FetchRequest, error: ErrorCode) -> None:
        leadership = self._leadership
        if error == ErrorCode.NONE and (request.offset < 0 or request.last_epoch < 0):
            error = ErrorCode.INVALID_REQUEST
        if error != ErrorCode.NONE or leadership is None:
            self._do(Reply(token=token, response=self._fetch_error(error)))
            return
        judged = log_view.judge_fetch(self._log, request.offset, request.last_epoch)
        leadership.forget_silent(self.voters, self._now - self._settings.observer_session_ms)
        if judged is not None:
            leadership.heard_from(request.replica_id, request.replica_directory_id, self._now)
            self._answer_fetch(token, request, judged)
            return
        leadership.heard_of(request, log_end=self._log.offset_end, now_ms=self._now)
        self._advance(leadership)
        known = request.high_watermark if request.high_watermark >= 0 else self.high_watermark
        if self._log.offset_end > request.offset or self.high_watermark > known or request.wait_max_ms <= 0:
            self._answer_fetch(token, request)
            return
        for other in [each for each in leadership.held.values() if each.request.replica_id == request.replica_id]:
            del leadership.held[other.token]  # it has asked anew, so it does not wait for that any more
            self._answer_fetch(other.token, other.request)
        leadership.held[token] = HeldFetch(
            token=token, request=request, known_high_watermark=known, deadline_ms=self._now + request.wait_max_ms
        )

    def _answer_fetch(
        self, token: Hashable, request: FetchRequest, judged: Divergence | SnapshotId | None = None
    ) -> None:
        response = FetchResponse(
            epoch=self.epoch,
            leader_id=self.leader_id,
            leader_endpoints=self.leader_endpoints,
            high_watermark=self.high_watermark,
            log_start_offset=self._log.log_start_offset,
            diverging=judged if isinstance(judged, Divergence) else None,
            snapshot_id=judged if isinstance(judged, SnapshotId) else None,
        )
        if judged is None and self._log.offset_end > request.offset:
            size = min(request.bytes_max, self._settings.fetch_bytes_max)
            self._do(ReplyWithRecords(token=token, response=response, offset=request.offset, bytes_max=size))
        else:
            self._do(Reply(token=token, response=response))

    def _receive_fetch_snapshot(self, token: Hashable, request: FetchSnapshotRequest, error: ErrorCode) -> None:
        size = self._log.snapshot_size(request.snapshot_id) if error == ErrorCode.NONE else None
        if error == ErrorCode.NONE:
            if self._leadership is not None:
                self._leadership.heard_from(request.replica_id, request.replica_directory_id, self._now)
            if size is None:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= request.position < size:
                error = ErrorCode.POSITION_OUT_OF_RANGE
        response = FetchSnapshotResponse(
            error=error,
            epoch=self.epoch,
            leader_id=self.leader_id,
            leader_endpoints=self.leader_endpoints,
            snapshot_id=request.snapshot_id,
            size=size or 0,
            position=request.position,
        )
        if error != ErrorCode.NONE:
            self._do(Reply(token=token, response=response))
            return
        self._do(
            ReplyWithSnapshot(
                token=token,
                response=response,
                snapshot_id=request.snapshot_id,
                position=request.position,
                bytes_max=min(request.bytes_max, self._settings.snapshot_bytes_max),
            )
        )

    def _receive_change(self, token: Hashable, request: ChangeRequest, error: ErrorCode) -> None:
        """Another set of voters: refused at once, or answered when it is committed."""
        leadership = self._leadership
        if error == ErrorCode.NONE and isinstance(request, UpdateVoterRequest) and request.epoch != self.epoch:
            older = request.epoch < self.epoch
            error = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        if error != ErrorCode.NONE or leadership is None:
            self._reply(token, error or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self._voters.is_configured:
            message = "the voters are configured on every node (controller.quorum.voters) and stay as they are"
            self._reply(token, ErrorCode.UNSUPPORTED_VERSION, message)
        elif not self._may_change_voters(leadership):
            self._reply(token, ErrorCode.REQUEST_TIMED_OUT, self._why_no_change(leadership))
        else:
            changed = changed_voters(self.voters, request, [each.name for each in self._endpoints])
            if isinstance(changed, Refusal):
                self._reply(token, changed.error, changed.message)
            elif changed == self.voters:
                self._reply(token, ErrorCode.NONE)
            else:
                deadline_ms = self._now + min(max(request.timeout_ms, 0), self._settings.voter_change_max_ms)
                if isinstance(request, AddVoterRequest):  # what one with this id has answered before is nothing
                    leadership.begun_ms.pop(request.voter.node_id, None)
                leadership.change = VoterChange(token=token, request=request, voters=changed, deadline_ms=deadline_ms)

    def _why_no_change(self, leadership: Leadership) -> str:
        if leadership.change is not None or self.voters_offset >= self.high_watermark:
            return "another change of the voters is under way; ask again when it is committed"
        return "this controller was elected a moment ago and has not committed anything yet; ask again"

    def _may_change_voters(self, leadership: Leadership) -> bool:
        """One change at a time, and none before this leader knows what is committed (KIP-853)."""
        settled = self.high_watermark > leadership.epoch_start
        return settled and leadership.change is None and self.voters_offset < self.high_watermark

    def _take_voters(self, event: VotersChanged) -> None:
        self._voters.add(event.offset, event.voters)
        leadership = self._leadership
        change = leadership.change if leadership is not None else None
        if leadership is not None and change is not None and change.voters == event.voters:
            leadership.change = replace(change, offset=event.offset)

    # -- answers

    def _hear_of(self, epoch: int, leader_id: int, endpoints: tuple[VoterEndpoint, ...]) -> None:
        """Somebody knows of this epoch, and maybe of its leader."""
        if epoch < self.epoch:
            return
        if leader_id in (NOBODY, self.node_id) or epoch <= self._over_epoch:
            if epoch > self.epoch:
                self._become_unattached(ElectionState(epoch=epoch))
            return
        searching = self._role not in (Role.FOLLOWER, Role.LEADER)
        consistent = self.election.leader_id in (NOBODY, leader_id)
        if epoch > self.epoch or (searching and consistent):
            self._become_follower(epoch, leader_id, endpoints)
        elif self._role is Role.FOLLOWER and consistent and endpoints:
            self._leader_endpoints = endpoints

    def _answered(self, asked: Asked, response: Response) -> None:
        if response.error == ErrorCode.INCONSISTENT_CLUSTER_ID:  # epochs and leaders of another cluster are none here
            self._failed(asked)
            self._peers.back_off(asked.node_id, self._now, self._settings.fetch_wait_max_ms)
            return
        before = self._changes
        granted = isinstance(response, VoteResponse) and response.granted and self._is_of_now(response)
        if not granted:  # who grants has not heard of the leader that it names for as long as this one
            self._hear_of(response.epoch, response.leader_id, response.leader_endpoints)
        if self._changes != before:
            return
        if response.error != ErrorCode.NONE or not self._is_of_now(response):
            self._failed(asked)
            if self._has_resigned(asked, response):
                self._over_epoch = self.epoch
                self._become_unattached(self.election)
            return
        match asked.request, response:
            case VoteRequest(), VoteResponse():
                if self._campaign is not None:
                    self._campaign.count(asked.node_id, response.granted)
            case BeginQuorumEpochRequest(), EpochResponse():
                if self._leadership is not None:
                    self._leadership.begun_ms[asked.node_id] = self._now
            case EndQuorumEpochRequest(), EpochResponse():
                self._told_end.add(asked.node_id)
            case UpdateVoterRequest(), EpochResponse():  # the log says it soon; until then it is not said again
                self._peers.back_off(asked.node_id, self._now, self._settings.fetch_wait_max_ms)
            case FetchRequest(), FetchResponse():
                self._fetched(asked.request, response)
            case FetchSnapshotRequest(), FetchSnapshotResponse():
                self._got_chunk(response)

    def _has_resigned(self, asked: Asked, response: Response) -> bool:
        """Whether the one that is followed says itself that it does not lead: nobody will in this epoch."""
        followed = self._role is Role.FOLLOWER and asked.node_id == self.election.leader_id
        refused = response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER and response.leader_id == NOBODY
        return followed and refused and self._is_of_now(response)

    def _is_of_now(self, response: Response) -> bool:
        """Whether an answer is of this epoch; one of an older one says nothing about it."""
        return response.epoch == self.epoch

    def _failed(self, asked: Asked) -> None:
        if isinstance(asked.request, FetchSnapshotRequest):
            self._download = None  # it may be gone there; the next fetch says what there is
        match asked.request:
            case BeginQuorumEpochRequest() | UpdateVoterRequest():  # it may be away for days; and that is not urgent
                self._peers.back_off(asked.node_id, self._now, self._settings.fetch_wait_max_ms)
            case _:
                self._peers.back_off(asked.node_id, self._now)

    def _fetched(self, asked: FetchRequest, response: FetchResponse) -> None:
        if self._role is not Role.FOLLOWER or self._storing:
            return
        self._heard_leader()
        if response.snapshot_id is not None:
            if self._now < self._not_before(response.snapshot_id):
                self._peers.back_off(self.leader_id, self._now, self._settings.fetch_wait_max_ms)
            else:
                self._begin_download(response.snapshot_id)
        elif response.diverging is not None:
            self._cut(response.diverging)
        elif asked.offset == self._log.offset_end:
            self._leader_high_watermark = max(self._leader_high_watermark, response.high_watermark)
            if response.records:
                self._storing = True
                self._do(Append(offset=asked.offset, records=response.records))

    def _note_refusal(self, asked: Asked, refused: bool) -> None:
        """A leader where nobody listens is no leader: others are asked at once whether they miss it too."""
        if self._role is not Role.FOLLOWER or asked.node_id != self.election.leader_id:
            return
        self._refusals = self._refusals + 1 if refused else 0
        if self._refusals >= REFUSALS:
            self._has_fetched = False
            # Not all at the same moment, or they would all ask for votes for themselves.
            self._deadline = min(
                self._deadline, self._now + int(self._rng.random() * self._settings.request_timeout_ms / 10)
            )

    def _heard_leader(self) -> None:
        self._has_fetched, self._refusals = True, 0
        self._deadline = self._now + self._settings.fetch_timeout_ms

    def _cut(self, diverging: Divergence) -> None:
        end = log_view.truncation_point(self._log, diverging)
        if end < self.high_watermark:
            raise CommittedDataLost(
                f"leader {self.leader_id} of epoch {self.epoch} has another log from offset {end} on, "
                f"and up to {self.high_watermark} was committed here"
            )
        if end < self._log.offset_end:
            self._storing = True
            self._voters.truncate(end)
            self._do(Truncate(offset=end))
        else:
            self._peers.back_off(self.leader_id, self._now)

    def _begin_download(self, snapshot_id: SnapshotId) -> None:
        if snapshot_id.offset_end <= self.high_watermark:
            raise CommittedDataLost(
                f"leader {self.leader_id} of epoch {self.epoch} has another log below its snapshot, which "
                f"ends at offset {snapshot_id.offset_end}, and up to {self.high_watermark} was committed here"
            )
        self._download = Download(snapshot_id=snapshot_id)
        self._do(BeginSnapshot(snapshot_id=snapshot_id))

    def _not_before(self, snapshot_id: SnapshotId) -> int:
        """When a snapshot may be fetched: one that was refused is not at once another one, and no smaller."""
        if self._refused_snapshot is None or self._refused_snapshot[0] != snapshot_id:
            return self._now
        _, count, at_ms = self._refused_snapshot
        return at_ms + min(self._settings.fetch_wait_max_ms << min(count, 10), SNAPSHOT_RETRY_MS_MAX)

    def _got_chunk(self, chunk: FetchSnapshotResponse) -> None:
        if self._download is None:
            return
        self._heard_leader()
        if not self._download.fits(chunk):
            self._download = None
            self._peers.back_off(self.leader_id, self._now)
            return
        self._do(StoreSnapshot(snapshot_id=self._download.snapshot_id, position=chunk.position, data=chunk.data))
        self._download = self._download.after(chunk)
        if self._download.is_whole:
            self._storing = True
            self._do(InstallSnapshot(snapshot_id=self._download.snapshot_id))
