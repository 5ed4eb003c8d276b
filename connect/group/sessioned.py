"""One worker in a group with Apache's workers, by `sessioned`

Stands where `machine` stands in a group of our workers alone: hears the same events, says the same actions, and has its
state under the same names. What differs is who knows what. A worker knows what it has, and hears of no more than what
comes to it and what goes (`sessioned_words`); whoever leads decides by `incremental`, and alone knows who has the rest.

- What a worker has after a round is what it told in its join for that round, less what is revoked, plus what is
  assigned: the leader has decided on those very words, whatever has happened since.
- It tells all that it may be doing: what it has, and what has not ended yet of what it had. So nobody else is given
  that before it has ended; when all that was revoked has, it asks for another round.
- What comes to it begins only when it has read the config topic as far as the leader had. Who leads and has not read
  as far as the others assigns nothing, is in no office, since it does not know what they do, and asks for another round
  when it has.
- Everybody asks for a round who reads that the topic wants something else than before, and when a delay is over: so
  nobody has to be told by a heartbeat. Each tells the delay that it was given, as Apache's workers do, and by that has
  something new to say: else a broker would begin no round for one that does not lead. Nobody asks any earlier: whoever
  leads, Apache's too, would answer with the rest of the delay, and that would be one more round.
- Who has lost its lease ends everything at once, where Apache's workers go on for a while: nobody knows here that it is
  the only one to have it any more.
- Who stops ends its tasks and leaves. What it had waits for it, as the leader's assignor has it.

The generation is the group's own: statuses of Apache's workers carry it, and are written or not by comparing it.

Pure, as `machine`. Not here: two workers under one address, and workers with other topics; this protocol has no words
for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from tidemill.connect.group.incremental import NEVER, Assignor, Changes, Round
from tidemill.connect.group.machine import (
    NOTHING,
    Action,
    Allow,
    EndAll,
    Event,
    Facts,
    Lead,
    Lease,
    Listed,
    Look,
    Over,
    Stop,
    Tell,
    Trouble,
    WakeAt,
    behind,
    behind_as_leader,
)
from tidemill.connect.group.sessioned_words import (
    CONFIG_MISMATCH,
    NO_ERROR,
    TEXT_BYTES_MAX,
    Assignment,
    WorkerState,
    decode_assignment,
    decode_state,
    encode_assignment,
    encode_state,
)
from tidemill.connect.group.words import BadWords
from tidemill.connect.herder.placement import SOMEBODY, Holder, Instance, Plan
from tidemill.core.client import membership as m

BEHIND_MS: Final = 500
"""A leader that has not read as much as others asks again after so long, if it has not read it before."""

LEADER_BEHIND: Final = "the leader gives nobody work before it has read the config topic up to"

NO_RECORD: Final = -1
"""How far the config topic was read, for Apache's workers, of a topic that is empty; after that it is where the next
record will be, as here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """What this worker has decided as the leader."""

    plan: Plan
    workers: Mapping[str, str]
    wanted: frozenset[Instance]
    at_ms: int  # from when on delays are counted


class SessionedMachine:
    """One worker's state and rules."""

    def __init__(self, url: str, assignor: Assignor) -> None:
        self.url = url
        self.member_id = ""
        self.leader = ""
        self.alone_in = -1  # in this protocol who does not lead knows of nobody else
        self.plan = Plan()  # of those in `workers`
        self.workers: Mapping[str, str] = MappingProxyType({})  # of whom it knows what they do: all, if it leads
        self.holds_lease = False
        self.behind = ""  # what keeps it from what is new to it, if something does
        self._assignor = assignor
        self._generation = NEVER  # of the assignment that is in force
        self._has = NOTHING
        self._revoked = NOTHING  # by the last assignment
        self._given = Assignment(leader="", leader_url="", config_offset=NO_RECORD)  # the last one
        self._decided: _Decided | None = None
        self._knows_all = False  # `plan` and `workers` are of the whole group
        self._allowed = Allow(generation=0, instances=NOTHING)
        self._stopping = False
        self._over = False
        self._asked = False  # for a round that has not ended
        self._in_round = False  # until it is told what was assigned in it
        self._again_at_ms: int | None = None
        self._settled_for: frozenset[Instance] | None = None  # what was wanted when the last round ended, as read here
        self._told = b""
        self._actions: list[Action] = []

    @property
    def leads(self) -> bool:
        """Whether it is the leader, and still may act as such: it knows what all others do."""
        return self._is_named and self._knows_all

    @property
    def _is_named(self) -> bool:
        """Whether the group has it decide; it may have read too little of the config topic to do so."""
        return self.holds_lease and self.leader == self.member_id

    @property
    def leader_url(self) -> str | None:
        """Where the leader answers, if there is one that this worker knows."""
        return (self._given.leader_url or None) if self.holds_lease else None

    @property
    def has_seat(self) -> bool:
        """Whether it is one of those who share the work."""
        return self.holds_lease

    def step(self, event: Event, facts: Facts, now_ms: int) -> list[Action]:
        """Take in an event; what is to be done, in order."""
        self._actions = []
        if self._over:
            return []
        match event:
            case Lead():
                self._lead(event, facts, now_ms)
            case m.Assigned():
                self._take(event, now_ms)
            case m.Leased(until_ms=until_ms):
                self._actions.append(Lease(until_ms=until_ms))
            case m.Lost(reason=reason):
                self._lose(reason)
            case Stop():
                self._stopping = True
            case m.Left():
                self._end(None)
            case m.Refused(reason=reason):
                self._lose(reason)
                self._end(reason)
            case Look() | Listed() | m.Unsettled():
                pass
        if not self._over:
            self._allow(facts)
            self._speak(facts)
            self._ask(facts, now_ms)
        self.behind = self._behind(facts)
        return self._actions

    def _behind(self, facts: Facts) -> str:
        if not self.holds_lease:
            return ""
        read, asked = _offset(facts), self._given.config_offset
        if self._given.error == NO_ERROR:
            return behind(read, asked)
        return behind_as_leader(read, asked) if self._is_named else f"{LEADER_BEHIND} {asked}"

    # ---------------------------------------------------------------- the rounds

    def _lead(self, lead: Lead, facts: Facts, now_ms: int) -> None:
        decide = lead.decide
        states, unread = self._states(decide)
        read = max(_offset(facts), *(state.config_offset for state in states.values()))
        if _offset(facts) < read:
            self._decided = None
            answer = Assignment(leader=decide.member_id, leader_url=self.url, config_offset=read, error=CONFIG_MISMATCH)
            answers = dict.fromkeys(states, encode_assignment(answer))
        else:
            holds = {member_id: state.holds for member_id, state in states.items()}
            changes = self._assignor.decide(
                Round(
                    generation=decide.generation,
                    completed=self._generation,
                    holds=holds,
                    wanted=self._sayable(facts.wanted),
                    now_ms=now_ms,
                    round_ms=decide.round_ms,
                    said_to_run=lead.said_to_run,
                    unread=unread,
                )
            )
            self._decided = self._as_decided(decide, states, facts, changes, now_ms)
            answers = self._answers(decide, changes, read)
        self._actions.append(Tell(event=m.Assign(generation=decide.generation, assignments=answers)))

    def _sayable(self, wanted: frozenset[Instance]) -> frozenset[Instance]:
        """What the protocol can say; the rest is nobody's."""
        long = frozenset(each for each in wanted if len(each.connector.encode()) > TEXT_BYTES_MAX)
        for each in sorted({instance.connector for instance in long}):
            reason = f"a connector's name is too long for the protocol, and it is run by nobody: {each[:60]}…"
            self._actions.append(Trouble(member_id=self.member_id, reason=reason))
        return wanted - long

    def _states(self, decide: m.Decide) -> tuple[dict[str, WorkerState], frozenset[str]]:
        """What the members said; who cannot be understood has what it had, as far as that is known, and is named."""
        states, unread = {}, set[str]()
        for row in decide.members:
            try:
                states[row.member_id] = decode_state(row.metadata)
            except BadWords as error:
                self._actions.append(Trouble(member_id=row.member_id, reason=str(error)))
                unread.add(row.member_id)
                had = Assignment(leader="", leader_url="", config_offset=-1, assigned=self.plan.of(row.member_id))
                url = self.workers.get(row.member_id, "")
                states[row.member_id] = WorkerState(url=url, config_offset=NO_RECORD, assignment=had)
        return states, frozenset(unread)

    def _as_decided(
        self, decide: m.Decide, states: Mapping[str, WorkerState], facts: Facts, changes: Changes, now_ms: int
    ) -> _Decided:
        holders = {member_id: Holder(member_id, state.url) for member_id, state in states.items()}
        assigned = {each: holders[member_id] for member_id, owned in changes.owned.items() for each in owned}
        held = {each: holders[member_id] for member_id, state in states.items() for each in state.holds}
        may_run = dict.fromkeys(changes.may_run, SOMEBODY)
        plan = _plan(decide.generation, _offset(facts), assigned, may_run | held | assigned)
        workers = MappingProxyType({member_id: state.url for member_id, state in states.items()})
        return _Decided(plan=plan, workers=workers, wanted=facts.wanted, at_ms=now_ms)

    def _answers(self, decide: m.Decide, changes: Changes, config_offset: int) -> dict[str, bytes]:
        return {
            member_id: encode_assignment(
                Assignment(
                    leader=decide.member_id,
                    leader_url=self.url,
                    config_offset=config_offset,
                    assigned=assigned,
                    revoked=changes.revoked[member_id],
                    delay_ms=changes.delay_ms,
                )
            )
            for member_id, assigned in changes.assigned.items()
        }

    def _take(self, news: m.Assigned, now_ms: int) -> None:
        self._asked = self._in_round = False
        self.holds_lease = True
        self.member_id, self.leader, self._generation = news.member_id, news.leader, news.generation
        self._revoked, self._settled_for, self._again_at_ms = NOTHING, None, None
        try:
            given, said = decode_assignment(news.assignment), decode_state(news.said)
        except BadWords as error:
            self._actions.append(Trouble(member_id=news.leader, reason=str(error)))
            given = Assignment(leader=news.leader, leader_url="", config_offset=NO_RECORD, error=CONFIG_MISMATCH)
            said = WorkerState(url=self.url, config_offset=NO_RECORD)
        self._given = given
        if given.error == NO_ERROR:
            self._has = (said.holds - given.revoked) | given.assigned
            self._revoked = given.revoked & said.holds
        decided = self._decided
        self._knows_all = self._is_named and decided is not None and decided.plan.generation == news.generation
        if self._knows_all and decided is not None:
            self.plan, self.workers, self._settled_for = (
                decided.plan,
                decided.workers,
                decided.wanted,
            )
        else:
            self._decided = None
            own = dict.fromkeys(self._has, Holder(news.member_id, self.url))
            self.plan = _plan(news.generation, given.config_offset, own, own)
            self.workers = MappingProxyType({news.member_id: self.url})
        if given.error != NO_ERROR:
            self._again_at_ms = now_ms + BEHIND_MS if self._is_named else None
        elif given.delay_ms > 0:
            since_ms = now_ms if self._decided is None else self._decided.at_ms
            self._again_at_ms = since_ms + given.delay_ms

    def _lose(self, reason: str) -> None:
        self.holds_lease = self._asked = self._knows_all = False
        self.leader = ""
        self.plan, self._decided, self._generation = Plan(generation=self.plan.generation), None, NEVER
        self._has = self._revoked = NOTHING
        self._again_at_ms = self._settled_for = None
        self._permit(Allow(generation=self._allowed.generation, instances=NOTHING))
        self._actions.append(EndAll(reason=reason))

    def _end(self, reason: str | None) -> None:
        self._over, self.holds_lease, self.leader = True, False, ""  # whoever asks hears of no leader that has gone
        self._actions.append(Over(reason=reason))

    # --------------------------------------------------------------- what comes of it

    def _is_read(self, facts: Facts) -> bool:
        """Whether the assignment may be acted on: it is one, and was made of what is known here, too."""
        return self._given.error == NO_ERROR and _offset(facts) >= self._given.config_offset

    def _allow(self, facts: Facts) -> None:
        if not self.holds_lease:
            return
        instances = self._has
        if self._stopping:
            instances = NOTHING
        elif not self._is_read(facts):
            instances = self._has & self._allowed.instances
        others = (instance for instance, holder in self.plan.holders.items() if holder.member_id != self.member_id)
        # A group that has begun anew counts from 1. What this worker has said before must not look like another's.
        generation = max(self._generation, self._allowed.generation)
        busy = frozenset(others) if self.leads else NOTHING
        self._permit(Allow(generation=generation, instances=instances, leads=self.leads, busy=busy))

    def _permit(self, allowed: Allow) -> None:
        if allowed != self._allowed:
            self._allowed = allowed
            self._actions.append(allowed)

    def _speak(self, facts: Facts) -> None:
        has = self._has | facts.running
        delay_ms = self._given.delay_ms if self.holds_lease else 0
        given = replace(self._given, error=NO_ERROR, assigned=has, revoked=NOTHING, delay_ms=delay_ms)
        assignment = given if has or delay_ms else None
        words = encode_state(WorkerState(url=self.url, config_offset=_offset(facts), assignment=assignment))
        if words != self._told:
            self._told = words
            self._actions.append(Tell(event=m.Describe(metadata=words)))

    def _ask(self, facts: Facts, now_ms: int) -> None:
        """Another round, if there is a reason and none is under way; who stops goes as soon as it does nothing."""
        if self._stopping:
            if not facts.running:
                self._actions.append(Tell(event=m.Leave()))
            return
        # The lease is told before what was assigned, when the round is over already: see `machine`.
        self._in_round |= not facts.settled
        if self._in_round or not self.holds_lease or self._asked:
            return
        if self._settled_for is None and self._is_read(facts):
            self._settled_for = facts.wanted
        changed = self._settled_for is not None and facts.wanted != self._settled_for
        released = bool(self._revoked) and not self._revoked & facts.running
        behind = self._is_named and self._given.error != NO_ERROR
        due = self._again_at_ms is not None and now_ms >= self._again_at_ms
        if changed or released or due or (behind and _offset(facts) >= self._given.config_offset):
            self._asked = True
            self._actions.append(Tell(event=m.Rejoin()))
        elif self._again_at_ms is not None:
            self._actions.append(WakeAt(at_ms=self._again_at_ms))


def _offset(facts: Facts) -> int:
    return facts.config_offset or NO_RECORD


def _plan(
    generation: int, config_offset: int, assigned: Mapping[Instance, Holder], holders: Mapping[Instance, Holder]
) -> Plan:
    return Plan(
        generation=generation,
        config_offset=config_offset,
        assigned=MappingProxyType(dict(assigned)),
        holders=MappingProxyType(dict(holders)),
    )
