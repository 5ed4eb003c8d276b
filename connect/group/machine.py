"""One worker in its group: what it may do, and when it asks for a round

Hears what its member of the group hears (`tidemill.core.client.membership`) and, with every event, how things stand
here (`Facts`): what the config topic wants, how far it was read, what has a process. Says what the herder may do
(`Allow`), that everything has to end at once (`EndAll`), and what the member has to tell the group (`Tell`).

- What a worker may do is what the last plan gives it. What is new in it may begin only when the config topic has been
  read as far as the leader had read it. What an assignment takes away ends, and only when that has ended is there a
  round in which somebody else may get it: so long it is among the words of this worker (`holds`).
- Who has lost its lease may do nothing, and what it did has to end at once. Once that has ended it says so of the
  member that it was: should the group have removed it, nobody waits for what it did, itself least of all.
- Who leads decides by `Placement`, and tells how long after that there has to be another round, if something waits for
  it. Everybody asks for that one when its time has come, and for one who reads that the topic wants something else than
  before: so nobody has to be told by a heartbeat. What waits is given by the leader's clock alone: whoever asks too
  early is told how long there still is.
- Who stops ends its tasks first; then says in a round that it leaves, and goes when everybody has heard it.
- Who has other topics than the leader gets nothing and goes: what one of them wants, the other has never heard of.
- Of two workers under one address the one that came later gets nothing, and goes if the other is still there in a round
  that ends when a life before it would not be any more.

Pure: `now_ms` counts from anywhere and never goes back. Not here: how tasks end (the herder, the guardian), and what
the bytes are (`words`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from tidemill.connect.group.words import (
    BadWords,
    Resolution,
    decode_resolution,
    decode_says,
    encode_resolution,
    encode_says,
)
from tidemill.connect.herder.placement import Holder, Instance, Placement, Plan, Round, WorkerSays
from tidemill.core.client import membership as m

GOODBYE_AGAIN_MS = 500
"""A round in which the leader was not ready to let a worker go is followed by another no sooner than this."""

LINGER_MS = 1_000
"""So long a leader that may go stays, for those who ask late for the plan that lets it go: who has missed that one, and
leads next, knows nothing of a worker that is to come back, and gives away what it did."""

LINGER_MAX_MS = 3_000
"""No longer than this since it was let go, though round follows round: the herder waits 5 s for it to be gone, and who
goes without a goodbye keeps the group waiting for a session."""

NAMESAKE_MARGIN_MS = 2_000
"""So much longer than a lease a worker waits for the address that another has: a life before it may still be listed."""

NOTHING: frozenset[Instance] = frozenset()


def behind(read: int, asked: int) -> str:
    """What keeps a worker from what is new to it; empty if nothing does.

    >>> behind(7, 7), behind(7, 9)
    ('', 'it has read the config topic up to 7 of 9, and begins nothing new before it has read that')
    """
    told = (
        f"it has read the config topic up to {max(read, 0)} of {asked}, and begins nothing new before it has read that"
    )
    return told if read < asked else ""


def behind_as_leader(read: int, others: int) -> str:
    """The same of one that leads, by what others have read."""
    told = f"it leads and has read the config topic up to {max(read, 0)} of {others}"
    return f"{told}: it gives no work before it has read that" if read < others else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """How things stand at the herder; `settled` is whether the member is in no round now."""

    wanted: frozenset[Instance]
    config_offset: int
    running: frozenset[Instance]
    settled: bool


# ---------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Something may be different at the herder, or time has passed. The first one makes the worker join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """This worker has to decide; what its topics say of instances that may run although nobody in the group says so."""

    decide: m.Decide
    said_to_run: frozenset[Instance]
    generation_heard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Who is in the group, which this worker is about to join."""

    members: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The worker is to end in order."""


Event: TypeAlias = Look | Lead | Listed | Stop | m.Assigned | m.Leased | m.Unsettled | m.Lost | m.Left | m.Refused


# --------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Tell the member."""

    event: m.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """What the herder is to do from now on, and nothing else.

    `generation` orders all assignments of an instance, whichever group they were made in. A leader also clears what
    nobody does any more, but not what others may still be doing (`busy`).
    """

    generation: int
    instances: frozenset[Instance]
    leads: bool = False
    busy: frozenset[Instance] = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Whatever happens to this worker, its tasks have to be gone soon after this time."""

    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAll:
    """Kill what this worker does; it is no longer its own."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Tell `Look` at this time."""

    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """This worker is out of the group for good; the reason, if that was not its own wish."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Words of another worker that could not be read."""

    member_id: str
    reason: str


Action: TypeAlias = Tell | Allow | Lease | EndAll | WakeAt | Over | Trouble


class GroupMachine:
    """One worker's state and rules."""

    def __init__(
        self,
        url: str,
        placement: Placement,
        *,
        lease_ms: int,
        gone: frozenset[str] = frozenset(),
        topics: tuple[str, ...] = (),
    ) -> None:
        self.url = url
        self.member_id = ""
        self.leader = ""
        self.plan = Plan()
        self.workers: Mapping[str, str] = MappingProxyType({})
        self.holds_lease = False
        self.behind = ""  # what keeps it from what is new to it, if something does
        self._placement = placement
        self._lease_ms = lease_ms
        self._namesake_ms: int | None = None  # since when somebody else has its address
        self._gone = gone
        self._former = frozenset[str]()  # members that it was, and that may be waited for
        self._former_told = frozenset[str]()  # of which it has had a round in which it could say that they are over
        self._topics = topics
        self._assigned = NOTHING  # by the last plan, since the last loss
        self._stale = NOTHING  # what still runs from before that
        self._allowed = Allow(generation=0, instances=NOTHING)
        self._stopping = False
        self._over = False
        self._asked = False  # for a round that has not ended
        self._in_round = False  # until it is told what was assigned in it
        self._decided: tuple[int, int | None, frozenset[Instance]] | None = None  # generation, again at, wanted
        self._again_at_ms: int | None = None
        self._others_read = -1  # of the config topic, as they said when this worker last led
        self._goodbye_ms: int | None = None
        self._taken_ms = 0  # when the last round was over
        self._let_go_ms: int | None = None  # when one was over that lets it go as it asked, for the first time
        self._settled_for: frozenset[Instance] | None = None  # what was wanted when the last round ended, as read here
        self._told: WorkerSays | None = None
        self._actions: list[Action] = []

    @property
    def leads(self) -> bool:
        """Whether it is the leader, and still may act as such."""
        return self.holds_lease and self.leader == self.member_id

    @property
    def alone_in(self) -> int:
        """Its last round, if there was nobody else in it and nobody was waited for; else -1."""
        there = {holder.member_id for holder in self.plan.holders.values()} | self.workers.keys()
        return self.plan.generation if there == {self.member_id} else -1

    @property
    def leader_url(self) -> str | None:
        """Where the leader answers, if there is one that this worker knows."""
        return self.workers.get(self.leader) if self.holds_lease else None

    @property
    def has_seat(self) -> bool:
        """Whether it is one of those who share the work."""
        return self.holds_lease and self._namesake_ms is None

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
                self._stale |= facts.running
            case Listed(members=members):
                self._placement.expect(members, now_ms)
            case Stop():
                self._stopping = True
            case m.Left():
                self._end(None)
            case m.Refused(reason=reason):
                self._lose(reason)
                self._end(reason)
            case Look() | m.Unsettled():
                pass
        self._stale &= facts.running
        if not self._over:
            self._allow(facts)
            self._speak(facts)
            self._ask(facts, now_ms)
            self._ask_who_is_there(now_ms)
        self.behind = self._behind(facts)
        return self._actions

    def _behind(self, facts: Facts) -> str:
        if not self.holds_lease:
            return ""
        as_leader = behind_as_leader(facts.config_offset, self._others_read) if self.leads else ""
        return as_leader or behind(facts.config_offset, self.plan.config_offset)

    # ---------------------------------------------------------------- the rounds

    def _lead(self, lead: Lead, facts: Facts, now_ms: int) -> None:
        decide = lead.decide
        words = [self._words(row) for row in decide.members]
        strangers = frozenset(each.holder.member_id for each in words if each.topics not in ((), self._topics))
        known = [each for each in words if each.holder.member_id not in strangers]
        namesakes = self._namesakes(known)
        says = [replace(each, leaving=True) if each.holder.member_id in namesakes else each for each in known]
        says += [replace(each, leaving=True, config_offset=-1) for each in words if each.holder.member_id in strangers]
        decision = self._placement.decide(
            Round(
                generation=decide.generation,
                workers=tuple(says),
                wanted=facts.wanted,
                config_offset=facts.config_offset,
                round_ms=decide.round_ms,
                now_ms=now_ms,
                said_to_run=lead.said_to_run,
                generation_heard=lead.generation_heard,
                is_first=decide.is_first,
            )
        )
        self._decided = (decide.generation, decision.again_at_ms, facts.wanted)
        self._others_read = max(each.config_offset for each in says)
        resolution = Resolution(
            plan=decision.plan,
            workers={each.holder.member_id: each.holder.url for each in known},
            namesakes=namesakes,
            strangers=strangers,
            topics=self._topics,
            again_in_ms=None if decision.again_at_ms is None else max(0, decision.again_at_ms - now_ms),
        )
        data = encode_resolution(resolution)
        assignments = {row.member_id: data for row in decide.members}
        self._actions.append(Tell(event=m.Assign(generation=decide.generation, assignments=assignments)))

    def _words(self, row: m.JoinedMember) -> WorkerSays:
        """What a member said; one that cannot be understood keeps what it had, and gets nothing."""
        try:
            return decode_says(row.member_id, row.metadata)
        except BadWords as error:
            self._actions.append(Trouble(member_id=row.member_id, reason=str(error)))
            plan = self._placement.plan
            held = frozenset(each for each, holder in plan.holders.items() if holder.member_id == row.member_id)
            return WorkerSays(holder=Holder(row.member_id, ""), config_offset=-1, holds=held, leaving=True)

    def _namesakes(self, words: list[WorkerSays]) -> frozenset[str]:
        """Of workers under one address, all but the one that was there first."""
        by_url: dict[str, list[str]] = {}
        gone = frozenset[str]().union(*(each.gone - {each.holder.member_id} for each in words))
        for each in words:
            if each.holder.member_id not in gone:
                by_url.setdefault(each.holder.url, []).append(each.holder.member_id)
        late = set[str]()
        for url, members in by_url.items():
            if url and len(members) > 1:
                first = min(members, key=lambda member_id: (self.workers.get(member_id) != url, member_id))
                late |= set(members) - {first}
        return frozenset(late)

    def _take(self, news: m.Assigned, now_ms: int) -> None:
        self._asked = self._in_round = False
        self.holds_lease, self._taken_ms = True, now_ms
        self.member_id, self.leader = news.member_id, news.leader
        try:
            resolution = decode_resolution(news.assignment)
        except BadWords as error:
            self._actions.append(Trouble(member_id=news.leader, reason=str(error)))
            resolution = Resolution(plan=Plan())
        self.plan, self.workers = resolution.plan, resolution.workers
        if self._stopping and self._let_go_ms is None and news.member_id in self.plan.left:
            self._let_go_ms = now_ms
        self._former &= {holder.member_id for holder in resolution.plan.holders.values()} - {news.member_id}
        if self.leads and self._decided is not None and self._decided[0] == news.generation:
            _, self._again_at_ms, self._settled_for = self._decided
        elif not self.leads:
            again_in_ms = resolution.again_in_ms
            self._again_at_ms, self._settled_for = None if again_in_ms is None else now_ms + again_in_ms, None
            if resolution.plan.generation == news.generation:
                self._placement.learn(resolution.plan, resolution.workers)
        self._assigned = resolution.plan.of(news.member_id)
        self._stale -= self._assigned
        if news.member_id in resolution.strangers:
            self._go(
                "has other topics",
                f"its workers have the topics {', '.join(resolution.topics)}, this one {', '.join(self._topics)}: "
                "give it the same (config.storage.topic and so on), or another group.id",
            )
        elif news.member_id not in resolution.namesakes:
            self._namesake_ms = None
        elif self._namesake_ms is None:
            self._namesake_ms = now_ms
        elif now_ms >= self._namesake_until_ms():
            self._go(
                "another worker has its address",
                f"another worker of the group answers at {self.url}: give each an address of its own "
                "(listeners, rest.advertised.host.name, rest.advertised.port)",
            )

    def _namesake_until_ms(self) -> int:
        """When a life before would be out of the group."""
        assert self._namesake_ms is not None
        return self._namesake_ms + self._lease_ms + NAMESAKE_MARGIN_MS

    def _ask_who_is_there(self, now_ms: int) -> None:
        """Ask for the round that tells whether somebody else has this worker's address for good.

        The last one does not: a life before may have been waiting for its end when it was killed, and that a round
        without it is over may take longer than its session.
        """
        if self._namesake_ms is None:
            return
        until_ms = self._namesake_until_ms()
        if now_ms < until_ms:
            self._actions.append(WakeAt(at_ms=until_ms))
        elif self.holds_lease and not self._in_round and not self._asked:
            self._rejoin()

    def _go(self, why: str, reason: str) -> None:
        """Out of the group, which does not want it."""
        self._actions.append(Tell(event=m.Leave()))
        self._lose(why)
        self._end(reason)

    def _lose(self, reason: str) -> None:
        if self.member_id:
            self._former |= {self.member_id}
        self.holds_lease = self._asked = False
        self.leader = ""
        self._assigned = NOTHING
        self._again_at_ms = self._settled_for = self._goodbye_ms = None
        self._permit(Allow(generation=self._allowed.generation, instances=NOTHING))
        self._actions.append(EndAll(reason=reason))

    def _end(self, reason: str | None) -> None:
        self._over, self.holds_lease, self.leader = True, False, ""  # whoever asks hears of no leader that has gone
        self._actions.append(Over(reason=reason))

    # --------------------------------------------------------------- what comes of it

    def _allow(self, facts: Facts) -> None:
        if not self.holds_lease:
            return
        instances = self._assigned
        if self._stopping:
            instances = NOTHING
        elif facts.config_offset < self.plan.config_offset:
            instances = self._assigned & self._allowed.instances
        others = (instance for instance, holder in self.plan.holders.items() if holder.member_id != self.member_id)
        busy = frozenset(others) if self.leads else NOTHING
        self._permit(Allow(generation=self.plan.overall, instances=instances, leads=self.leads, busy=busy))

    def _permit(self, allowed: Allow) -> None:
        if allowed != self._allowed:
            self._allowed = allowed
            self._actions.append(allowed)

    def _holds(self, facts: Facts) -> frozenset[Instance]:
        if self._stopping and not facts.running:
            return NOTHING
        return self._assigned | facts.running

    def _speak(self, facts: Facts) -> None:
        says = WorkerSays(
            holder=Holder("", self.url),
            config_offset=facts.config_offset,
            holds=self._holds(facts),
            stale=self._stale,
            leaving=self._stopping,
            gone=self._gone if facts.running else self._gone | self._former,
            topics=self._topics,
            heard=self.plan.generation,
        )
        if says != self._told:
            self._told = says
            self._actions.append(Tell(event=m.Describe(metadata=encode_says(says))))

    def _ask(self, facts: Facts, now_ms: int) -> None:
        """Another round, if there is a reason and none is under way."""
        if self._stopping and not facts.running and not self.holds_lease:
            self._actions.append(Tell(event=m.Leave()))  # there is nobody to say goodbye to
            return
        # The lease is told before what was assigned, when the round is over already. Who asks for another one in
        # between joins it without that among its words, and somebody else is given it too.
        self._in_round |= not facts.settled
        if self._in_round and self._let_go_ms is not None and not self._holds(facts):
            self._leave_at(self._let_go_ms + LINGER_MAX_MS, now_ms)  # a round is as slow as its slowest member
        if self._in_round or not self.holds_lease or self._asked:
            return
        holds = self._holds(facts)
        if self._stopping and not holds:
            self._say_goodbye(now_ms)
            return
        released = bool(self.plan.releasing.get(self.member_id, NOTHING) - holds)
        if self._settled_for is None and facts.config_offset >= self.plan.config_offset:
            self._settled_for = facts.wanted
        changed = self._settled_for is not None and facts.wanted != self._settled_for
        due = self._again_at_ms is not None and now_ms >= self._again_at_ms
        ended = not facts.running and not self._former <= self._former_told
        if released or changed or due or ended:
            self._former_told = self._former if ended else self._former_told
            self._rejoin()
        elif self._again_at_ms is not None:
            self._actions.append(WakeAt(at_ms=self._again_at_ms))

    def _say_goodbye(self, now_ms: int) -> None:
        if self.member_id in self.plan.left:
            lingers = self.leads and len(self.workers) > 1
            let_go_ms = self._taken_ms if self._let_go_ms is None else self._let_go_ms
            until_ms = min(self._taken_ms + LINGER_MS, let_go_ms + LINGER_MAX_MS) if lingers else now_ms
            self._leave_at(until_ms, now_ms)
        elif self._goodbye_ms is None or now_ms >= self._goodbye_ms + GOODBYE_AGAIN_MS:
            self._goodbye_ms = now_ms
            self._rejoin()
        else:
            self._actions.append(WakeAt(at_ms=self._goodbye_ms + GOODBYE_AGAIN_MS))

    def _leave_at(self, until_ms: int, now_ms: int) -> None:
        self._actions.append(Tell(event=m.Leave()) if now_ms >= until_ms else WakeAt(at_ms=until_ms))

    def _rejoin(self) -> None:
        self._asked = True
        self._actions.append(Tell(event=m.Rejoin()))
