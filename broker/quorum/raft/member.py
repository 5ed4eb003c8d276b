"""The state of one member of the quorum, and how it changes role

Every change of role goes through here, and with it what has to go with it: the election state is persisted before
anything that rests on it is said, whoever waits for a leader that is none any more is told so, and what was asked in
another role or epoch is forgotten. When to change is `machine`'s affair.
"""

import uuid
from collections.abc import Hashable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Protocol

from tidemill.broker.quorum.raft import log_view
from tidemill.broker.quorum.raft.actions import (
    Action,
    AppendLeaderChange,
    AppendVoters,
    Persist,
    Reply,
    Send,
)
from tidemill.broker.quorum.raft.campaign import Campaign
from tidemill.broker.quorum.raft.download import Download
from tidemill.broker.quorum.raft.election import NOBODY, ElectionState
from tidemill.broker.quorum.raft.leadership import Leadership, Progress
from tidemill.broker.quorum.raft.log_view import LogView
from tidemill.broker.quorum.raft.messages import (
    BeginQuorumEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    Request,
    VoteRequest,
)
from tidemill.broker.quorum.raft.peers import Peers
from tidemill.broker.quorum.raft.settings import QuorumSettings
from tidemill.broker.quorum.raft.voter_history import BOOTSTRAPPED, VoterHistory
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint, VoterSet
from tidemill.broker.quorum.snapshot import SnapshotId
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID


class Role(Enum):
    """What a member is; a follower that is no voter is an observer, and so is one that looks for a leader."""

    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"
    OBSERVER = "observer"


class Chance(Protocol):
    """Where randomness comes from; `random.Random` is one."""

    def random(self) -> float:
        """At least 0.0, less than 1.0."""


class Member:
    """Mutable: changes by `step` only. What it shows holds after a step, when the actions of that are done."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str | None,
        election: ElectionState,
        log: LogView,
        voters: VoterSet,
        settings: QuorumSettings,
        rng: Chance,
        now_ms: int,
        directory_id: uuid.UUID = ZERO_UUID,
        endpoints: tuple[VoterEndpoint, ...] = (),
        bootstrap: Sequence[tuple[str, int]] = (),
        has_forgotten: bool = False,
    ) -> None:
        """As it comes back from disk: `election` is what was persisted last, `voters` are those that are configured.

        `has_forgotten` is whether something is gone of the log that this node has said to hold.

        VotersChanged for every set that the log or the snapshot has comes next, then a first Tick. `endpoints` are this
        node's own, `bootstrap` the addresses of nodes that may know the leader.
        """
        self.node_id = node_id
        self.directory_id = directory_id
        self.election = election
        self.high_watermark = log.log_start_offset  # snapshots are of what is committed
        self._cluster_id = cluster_id
        self._log = log
        self._settings = settings
        self._rng = rng
        self._now = now_ms
        self._endpoints = endpoints
        self._bootstrap = {-2 - i: (VoterEndpoint("", *address),) for i, address in enumerate(bootstrap)}
        self._voters = VoterHistory(voters)
        self._peers = Peers(settings)
        self._actions: list[Action] = []
        self.has_forgotten = has_forgotten
        """Whether others count on something that is not in the log; until it is again, this node elects nobody."""
        self._has_begun = False
        self._changes = 0  # of role or epoch, or another try in the same ones
        self._over_epoch = -1  # the newest epoch of which it is known that its leader has resigned
        self._leader_endpoints: tuple[VoterEndpoint, ...] = ()
        self._campaign: Campaign | None = None
        self._leadership: Leadership | None = None
        self._successors: tuple[tuple[int, uuid.UUID], ...] = ()
        self._told_end: set[int] = set()
        self._download: Download | None = None
        self._refused_snapshot: tuple[SnapshotId, int, int] | None = None  # how often in a row, and when the last time
        self._storing = False  # what was fetched is handed over, and not known to be in the log
        self._has_fetched = False  # from the leader, since it was found or lost
        self._refusals = 0  # in a row, where the leader should listen
        self._leader_high_watermark = 0  # of this epoch's leader, for the log that was compared with its
        if election.leader_id == node_id:
            self._over_epoch = election.epoch
            self._role = Role.RESIGNED
            self._deadline = now_ms + self._election_timeout()
        elif election.has_leader:
            self._role = Role.FOLLOWER
            self._deadline = now_ms + settings.fetch_timeout_ms
        else:
            self._role = Role.UNATTACHED
            self._deadline = now_ms + self._election_timeout()

    # -- what holds now

    @property
    def role(self) -> Role:
        """What this member is."""
        if self._role in (Role.UNATTACHED, Role.FOLLOWER) and not self.is_voter:
            return Role.OBSERVER
        return self._role

    @property
    def epoch(self) -> int:
        """The newest epoch that it knows of."""
        return self.election.epoch

    @property
    def leader_id(self) -> int:
        """Who leads the epoch as far as is known, NOBODY (-1) if it is not, or if that one has resigned."""
        return NOBODY if self.epoch <= self._over_epoch else self.election.leader_id

    @property
    def leader_endpoints(self) -> tuple[VoterEndpoint, ...]:
        """Where the leader can be reached, as far as it is known."""
        if self._leadership is not None:
            return self._endpoints
        voter = self.voters.get(self.leader_id)
        return self._leader_endpoints or (voter.endpoints if voter is not None else ())

    @property
    def voters(self) -> VoterSet:
        """The set that counts, committed or not."""
        return self._voters.latest

    @property
    def voters_offset(self) -> int:
        """Where that set is in the log: BOOTSTRAPPED (-1) before its start, CONFIGURED (-2) nowhere."""
        return self._voters.offset

    @property
    def is_voter(self) -> bool:
        """Whether this node, with its directory, is one of them."""
        return self.voters.is_voter(self.node_id, self.directory_id)

    @property
    def leads(self) -> bool:
        """Whether this member may append in its epoch."""
        return self._leadership is not None

    @property
    def epoch_start(self) -> int:
        """The first offset of the epoch that it leads; -1 where it does not lead."""
        return self._leadership.epoch_start if self._leadership is not None else -1

    @property
    def is_settled(self) -> bool:
        """Whether it leads and has committed something in its epoch: it knows then all that is committed."""
        return self._leadership is not None and self.high_watermark > self._leadership.epoch_start

    @property
    def replicas(self) -> Mapping[int, Progress]:
        """Of a leader: how far the others have come, by node id."""
        return self._leadership.replicas if self._leadership is not None else {}

    def next_deadline_ms(self) -> int | None:
        """When a Tick is due at the latest."""
        return min(self._deadlines(), default=None)

    def _deadlines(self) -> Iterator[int]:
        leadership = self._leadership
        asked = self._peers.next_deadline_ms(self._now)
        if asked is not None:
            yield asked
        if leadership is None:
            yield self._now if self._role is Role.UNATTACHED and self._is_alone else self._deadline
            return
        yield from leadership.deadlines()
        quorum = leadership.quorum_deadline_ms(self.voters, self._settings.check_quorum_timeout_ms)
        if quorum is not None:
            yield quorum
        for each in leadership.others(self.voters):
            due = leadership.begin_due_ms(each, self._settings.fetch_timeout_ms // 2)
            if due > self._now:
                yield due

    @property
    def _is_alone(self) -> bool:
        return len(self.voters) == 1 and self.is_voter and not self.has_forgotten

    @property
    def _may_campaign(self) -> bool:
        """Whether it is a voter, or was one before a change that may not be committed.

        The set that is without it may be in its log only. Those who are in it then cannot win against that log, and
        whether it is committed is for the one to find out who has it.
        """
        if self.is_voter or self.has_forgotten:
            return self.is_voter and not self.has_forgotten
        return self._voters.offset >= self.high_watermark and self._voters.was_voter(self.node_id, self.directory_id)

    @property
    def _own_news(self) -> Voter | None:
        """This voter as it is, where the voters know it otherwise and may be changed; None where nothing is to do."""
        known = self.voters.get(self.node_id)
        if known is None or not self.is_voter or not self._endpoints or self._voters.is_configured:
            return None
        me = Voter(node_id=self.node_id, directory_id=self.directory_id, endpoints=self._endpoints)
        return me if me != known else None

    @property
    def _own_votes(self) -> tuple[int, ...]:
        return (self.node_id,) if self.is_voter else ()

    def _do(self, action: Action) -> None:
        self._actions.append(action)

    # -- changes of role

    def _remember(self, state: ElectionState) -> None:
        if state != self.election:
            assert state.may_follow(self.election), (state, self.election)
            if self._actions and isinstance(self._actions[-1], Persist):
                self._actions.pop()  # nothing has been said since that rests on it, and each costs an fsync
            self._do(Persist(state=state))
            self.election = state

    def _leave_role(self) -> None:
        self._changes += 1
        leadership, self._leadership = self._leadership, None
        self._campaign = None
        self._download = None
        self._told_end = set()
        self._has_fetched, self._refusals = False, 0
        self._leader_high_watermark = 0
        self._leader_endpoints = ()
        self._peers.forget()
        if leadership is None:
            return
        for held in leadership.held.values():
            self._do(Reply(token=held.token, response=self._fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
        if leadership.change is not None and leadership.change.token is not None:
            self._reply(leadership.change.token, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _become_unattached(self, state: ElectionState, timeout_ms: int | None = None) -> None:
        """No leader to follow; an election that was near stays near, so that no stream of rivals puts it off."""
        deadline = self._deadline
        if timeout_ms is not None:
            deadline = self._now + timeout_ms
        elif self._role is not Role.UNATTACHED:
            deadline = self._now + self._election_timeout()
        self._remember(state)
        self._leave_role()
        self._role, self._deadline = Role.UNATTACHED, deadline

    def _become_follower(self, epoch: int, leader_id: int, endpoints: tuple[VoterEndpoint, ...]) -> None:
        voted = (self.election.voted_id, self.election.voted_directory_id) if epoch == self.epoch else ()
        self._remember(
            ElectionState(epoch=epoch, leader_id=leader_id, voted_id=voted[0], voted_directory_id=voted[1])
            if voted
            else ElectionState(epoch=epoch, leader_id=leader_id)
        )
        self._leave_role()
        self._role, self._leader_endpoints = Role.FOLLOWER, endpoints
        self._deadline = self._now + self._settings.fetch_timeout_ms

    def _become_prospective(self) -> None:
        self._leave_role()
        self._role, self._campaign = Role.PROSPECTIVE, Campaign(pre_vote=True, granted=self._own_votes)
        self._deadline = self._now + self._election_timeout()

    def _become_candidate(self) -> None:
        self._remember(ElectionState(epoch=self.epoch + 1, voted_id=self.node_id, voted_directory_id=self.directory_id))
        self._leave_role()
        self._role, self._campaign = Role.CANDIDATE, Campaign(pre_vote=False, granted=self._own_votes)
        self._deadline = self._now + self._election_timeout()

    def _become_leader(self, granting: Sequence[int]) -> None:
        self._remember(
            ElectionState(
                epoch=self.epoch,
                leader_id=self.node_id,
                voted_id=self.election.voted_id,
                voted_directory_id=self.election.voted_directory_id,
            )
        )
        self._leave_role()
        member = Voter(node_id=self.node_id, directory_id=self.directory_id, endpoints=self._endpoints)
        self._leadership = Leadership(member, epoch_start=self._log.offset_end, now_ms=self._now)
        self._role = Role.LEADER
        self._do(
            AppendLeaderChange(
                epoch=self.epoch,
                leader_id=self.node_id,
                voters=self.voters.ids,
                granting_voters=tuple(sorted(granting)),
            )
        )
        if self.voters_offset == BOOTSTRAPPED:  # nobody who fetches would ever hear of them
            self._do(AppendVoters(epoch=self.epoch, voters=self.voters))

    def _resign(self, successor: int | None = None) -> None:
        """Lead no more, and tell the voters who should; the epoch has no other leader."""
        assert self._leadership is not None
        ranked = self._leadership.successors(self.voters)
        self._successors = tuple(sorted(ranked, key=lambda each: each[0] != successor))
        self._over_epoch = self.epoch
        self._leave_role()
        self._role, self._deadline = Role.RESIGNED, self._now + self._election_timeout()

    def _election_timeout(self) -> int:
        least = self._settings.election_timeout_ms
        return least + int(self._rng.random() * least)

    def _backoff(self) -> int:
        return 1 + int(self._rng.random() * self._settings.election_backoff_max_ms)

    # -- what is sent

    def _ask(
        self, node_id: int, endpoints: tuple[VoterEndpoint, ...], request: Request, *, way: int | None = None
    ) -> None:
        """`way` is the one on which it goes, that of all requests to this node unless another one is named."""
        request_id = self._peers.sent(node_id if way is None else way, request, self._now)
        self._do(Send(request_id=request_id, node_id=node_id, endpoints=endpoints, request=request))

    def _vote_request(self, voter: Voter, *, pre_vote: bool) -> VoteRequest:
        return VoteRequest(
            cluster_id=self._cluster_id,
            epoch=self.epoch,
            candidate_id=self.node_id,
            candidate_directory_id=self.directory_id,
            last_epoch=log_view.last_epoch(self._log),
            end_offset=self._log.offset_end,
            pre_vote=pre_vote,
            voter_id=voter.node_id,
            voter_directory_id=voter.directory_id,
        )

    def _begin_request(self, voter: Voter) -> BeginQuorumEpochRequest:
        return BeginQuorumEpochRequest(
            cluster_id=self._cluster_id,
            epoch=self.epoch,
            leader_id=self.node_id,
            leader_endpoints=self._endpoints,
            voter_id=voter.node_id,
            voter_directory_id=voter.directory_id,
        )

    def _fetch_request(self) -> FetchRequest:
        return FetchRequest(
            cluster_id=self._cluster_id,
            epoch=self.epoch,
            replica_id=self.node_id,
            replica_directory_id=self.directory_id,
            offset=self._log.offset_end,
            last_epoch=log_view.last_epoch(self._log),
            high_watermark=self.high_watermark,
            bytes_max=self._settings.fetch_bytes_max,
            # Its answer is what tells that there is a leader: it has to come before one is missed.
            wait_max_ms=min(self._settings.fetch_wait_max_ms, self._settings.fetch_timeout_ms // 2),
        )

    def _reply(self, token: Hashable, error: ErrorCode, message: str | None = None) -> None:
        self._do(Reply(token=token, response=self._epoch_response(error, message)))

    def _epoch_response(self, error: ErrorCode = ErrorCode.NONE, message: str | None = None) -> EpochResponse:
        return EpochResponse(
            error=error,
            epoch=self.epoch,
            leader_id=self.leader_id,
            leader_endpoints=self.leader_endpoints,
            message=message,
        )

    def _fetch_error(self, error: ErrorCode) -> FetchResponse:
        return FetchResponse(
            error=error, epoch=self.epoch, leader_id=self.leader_id, leader_endpoints=self.leader_endpoints
        )
