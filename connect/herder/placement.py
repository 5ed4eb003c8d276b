"""Which worker of a group does what, as the leader decides it

Everything a Connect cluster does is an instance: a task, or a connector itself (which asks its plugin for tasks).
Each has one worker that is to do it, kept from round to round: what moves is what has lost its worker, and no more of
the rest than makes the load even, connectors and tasks each for themselves.

An instance is given to a worker only when nobody else may be doing it:

- Who does something it is to do no longer goes on until it has said in a later round that it holds it no more.
- What a worker held that is gone waits `grace_ms`. The group removed the worker because its session was over, so by
  its own clock its lease was over before, and so long it has to end its processes. Where the round took so long that
  it may have been removed for not joining in time, or where the group has begun anew, its lease may just have been
  renewed: then it is a lease longer.
- What is known to have ended is not waited for: a worker says so of the member that it was before it lost its lease,
  and of its lives before on the same machine (`gone`). But in a round that the leader knows nothing of somebody else
  may have been given it: unless that round was of nobody, it waits as what a worker held that is gone.
- A leader without any plan knows of no round. It goes by the status topic, and by who was in the group before it came
  (`expect`): if one of them is missing, somebody may be doing what the status topic does not tell yet. Who was removed
  just before that look may still be ending it: so in a group that has had rounds `grace_ms` have to pass since then,
  unless a life on this machine was alone in the last of them and waited for nobody (`alone`). If it was in rounds of
  which it has learned nothing, or its first one took as long as a lease, somebody may be doing anything in any case.
- A worker that is about to stop says so (`leaving`), ends its tasks and then goes. What it did waits `return_ms` for a
  worker under the same address, so that a restart moves nothing; it may have it back at once.

Every assignment holds the whole `Plan`, so that whoever leads next goes on from it. Pure: a plan depends on nothing but
the plan before, what the workers say and what time it is.

Not here: how a worker ends its tasks when its lease is over, and that it starts nothing before it has read the config
topic as far as the plan's `config_offset`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

CONNECTOR = -1
"""The task number of a connector itself, as in Kafka's assignments."""


class Instance(NamedTuple):
    """A task of a connector, or with `CONNECTOR` itself."""

    connector: str
    task: int


class Holder(NamedTuple):
    """A member of the group and its worker's address."""

    member_id: str
    url: str


SOMEBODY = Holder("", "")
"""Who may be doing something and is not known: it was given that in a round that the leader knows nothing of, or has
gone."""

ANYTHING = Instance("", CONNECTOR)
"""Stands among what `SOMEBODY` may be doing where that may be anything, also what is wanted only later, of which the
leader may not have read yet. It is nobody's name, and whoever leads next waits for it as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSays:
    """What a worker tells with its join.

    `holds` is all that it may be doing until it has its next assignment: what it was assigned and what still runs.
    `stale` is what of it still runs from before its lease was over: somebody else may have been given it since.
    `gone` are members of which it knows that nothing they did runs any more: those that it was itself, and lives before
    it on the same machine.
    `topics` are where it reads what is wanted: offsets mean the same only to workers with the same ones.
    `heard` is the last round of which it knows the plan. So what it tells in the next one is new, whatever else is.
    """

    holder: Holder
    config_offset: int
    holds: frozenset[Instance] = frozenset()
    stale: frozenset[Instance] = frozenset()
    leaving: bool = False
    gone: frozenset[str] = frozenset()
    topics: tuple[str, ...] = ()
    heard: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What the leader knows when it has to decide; `now_ms` is of a clock that never goes back.

    `generation_heard` is the highest that anybody has written into the status topic.

    `said_to_run` is what the status topic says to run. It is asked only if there was a round that this leader knows
    nothing of: then somebody that is gone may have been given it there.
    """

    generation: int
    workers: tuple[WorkerSays, ...]
    wanted: frozenset[Instance]
    config_offset: int
    round_ms: int
    now_ms: int
    said_to_run: frozenset[Instance] = frozenset()
    generation_heard: int = 0
    is_first: bool = False  # that the leader was in


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Who is to do what (`assigned`), and who may be doing it (`holders`), which includes workers that are gone."""

    generation: int = -1
    base: int = 0
    config_offset: int = -1
    assigned: Mapping[Instance, Holder] = field(default_factory=lambda: MappingProxyType({}))
    holders: Mapping[Instance, Holder] = field(default_factory=lambda: MappingProxyType({}))
    releasing: Mapping[str, frozenset[Instance]] = field(default_factory=lambda: MappingProxyType({}))
    """What members do that is not theirs: who holds none of it any more has to ask for another round."""
    left: frozenset[str] = frozenset()
    """Members that have said that they leave, and hold nothing."""

    @property
    def overall(self) -> int:
        """The generation, counted on where the group has begun anew: above all that was told before."""
        return self.base + self.generation

    def of(self, member_id: str) -> frozenset[Instance]:
        """What one member is to do."""
        return frozenset(instance for instance, holder in self.assigned.items() if holder.member_id == member_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneIn:
    """The last round of a life that is over, in which there was nobody else, and nobody was waited for.

    `overall` is counted as a plan's is.
    """

    generation: int
    overall: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A plan, and when there has to be another round because something waits; None if nothing does."""

    plan: Plan
    again_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSettings:
    """All in milliseconds; the lease and the rebalance timeout are those of the members."""

    lease_ms: int = 10_000
    rebalance_timeout_ms: int = 60_000
    grace_ms: int = 5_000
    return_ms: int = 10_000
    behind_ms: int = 500  # a leader that has not read as much as others asks again after so long


class Placement:
    """What a leader remembers between rounds, and how it decides."""

    def __init__(self, settings: PlacementSettings | None = None, alone: Collection[AloneIn] = ()) -> None:
        self.plan = Plan()
        self._settings = settings or PlacementSettings()
        self._alone = tuple(alone)
        self._members = frozenset[str]()  # who was there in the round of the plan
        self._before: frozenset[str] | None = None  # who was in the group before this worker, if that could be asked
        self._before_ms: int | None = None
        self._gone_ms: dict[str, tuple[int, int]] = {}  # members: when their absence was seen, and how long to wait

    def learn(self, plan: Plan, members: Collection[str] = ()) -> None:
        """The plan of a round that somebody else led; what that one waits for, this one would wait for anew."""
        self._members = frozenset(members)
        if plan != self.plan:  # its own comes back to who leads
            self.plan = plan
            self._gone_ms.clear()

    def expect(self, members: Collection[str], now_ms: int) -> None:
        """Who was in the group when this worker was about to join it."""
        self._before, self._before_ms = frozenset(members), now_ms

    def decide(self, now: Round) -> Decision:
        """The next plan, which is remembered."""
        present = {worker.holder.member_id: worker for worker in now.workers}
        if self.plan.generation != now.generation - 1:
            self._suspect_somebody(now, present)
        if ANYTHING in self.plan.holders:
            self._suspect(now.wanted - self.plan.holders.keys() - _held(present))
        self._members = frozenset(present)
        base = max(self.plan.base, now.generation_heard + 1 - now.generation)
        if now.generation <= self.plan.generation:
            base = max(base, self.plan.overall)
        self._notice_absences(now, present)
        holders = self._holders(present)
        if now.config_offset < max((worker.config_offset for worker in now.workers), default=-1):
            return self._wait_for_the_topic(now, base, present, holders)
        free, waits = self._free(now, present, holders)
        assigned: dict[Instance, Holder] = {}
        for is_connector in (True, False):
            wanted = sorted(instance for instance in now.wanted if (instance.task == CONNECTOR) is is_connector)
            assigned |= self._share(wanted, present, free)
        holders |= assigned
        left = {member_id for member_id, worker in present.items() if worker.leaving and not worker.holds}
        waiting = {holder.member_id for holder in holders.values()} - set(present)
        self.plan = Plan(
            generation=now.generation,
            base=base,
            config_offset=now.config_offset,
            assigned=MappingProxyType(assigned),
            holders=MappingProxyType(holders),
            releasing=_releasing(present, assigned),
            left=frozenset(left | (self.plan.left & waiting)),
        )
        return Decision(plan=self.plan, again_at_ms=min(waits, default=None))

    # ------------------------------------------------------- who may be doing what

    def _suspect_somebody(self, now: Round, present: Mapping[str, WorkerSays]) -> None:
        """What may have been given to somebody in a round unknown here, though nobody is left who says so.

        That is what the status topic says to run. But it says nothing of what is only about to start, or was when its
        worker was cut off: so it is also whatever the plan before had, and what is wanted, if somebody may be missing.
        """
        unknown = now.said_to_run | self.plan.holders.keys()
        waits = now.now_ms, self._wait_ms(now)
        if self._was_of_nobody(now, present):
            ended = frozenset[str]().union(*(worker.gone for worker in present.values()))
            known = {each for each, holder in self.plan.holders.items() if holder.member_id not in ended}
            unknown = now.said_to_run - known
        elif self.plan.generation >= 0 or self._may_miss_somebody(now, present):
            unknown |= now.wanted | {ANYTHING}
        elif now.generation > 1 and self._before_ms is not None:  # all before were removed before the look
            waits = self._before_ms, self._settings.grace_ms
            unknown |= frozenset() if self._follows_a_life_alone(now) else now.wanted | {ANYTHING}
        unknown -= _held(present)
        if unknown:
            self._gone_ms[SOMEBODY.member_id] = max(waits, self._gone_ms.get(SOMEBODY.member_id, waits), key=sum)
        self._suspect(unknown)

    def _suspect(self, unknown: frozenset[Instance]) -> None:
        holders = {**self.plan.holders, **dict.fromkeys(unknown, SOMEBODY)}
        self.plan = replace(self.plan, holders=MappingProxyType(holders))

    def _may_miss_somebody(self, now: Round, present: Mapping[str, WorkerSays]) -> bool:
        """Whether somebody may do something who is neither here nor known to have ended, for a leader without a plan.

        Who came between the look at the group and this leader's own join, and is missing, was silent for a session.
        """
        if self._before is None or self._before_ms is None:
            return now.generation > 1  # nobody can tell; a group that is new waits for nothing
        ended = frozenset[str]().union(*(worker.gone for worker in present.values()))
        took_long = now.now_ms - self._before_ms >= self._settings.lease_ms
        return took_long or not now.is_first or bool(self._before - present.keys() - ended)

    def _follows_a_life_alone(self, now: Round) -> bool:
        """Whether the only round since one that a life on this machine had for itself is that of nobody (see below)."""
        return any(
            now.generation == alone.generation + 2 and now.generation_heard <= alone.overall for alone in self._alone
        )

    def _was_of_nobody(self, now: Round, present: Mapping[str, WorkerSays]) -> bool:
        """Whether all that is unknown is one round, in which the group had nobody left.

        A group that loses its last member counts one generation. Nobody who was in it before is in it after that under
        the same name, and nobody has written a generation of then.
        """
        only_one = now.generation == self.plan.generation + 2
        return only_one and now.generation_heard <= self.plan.overall and not self._members & present.keys()

    def _notice_absences(self, now: Round, present: Mapping[str, WorkerSays]) -> None:
        grace_ms, settings = self._wait_ms(now), self._settings
        absent = {holder.member_id for holder in self.plan.holders.values()} - set(present)
        for member_id in absent:
            wait_ms = settings.return_ms if member_id in self.plan.left else grace_ms
            self._gone_ms.setdefault(member_id, (now.now_ms, wait_ms))
        for worker in present.values():
            self._gone_ms |= dict.fromkeys(absent & worker.gone, (now.now_ms, 0))
        self._gone_ms = {member_id: gone for member_id, gone in self._gone_ms.items() if member_id in absent}

    def _wait_ms(self, now: Round) -> int:
        """How long it may take until whoever is missed since now does nothing any more."""
        settings = self._settings
        # A group of the first generation may be one that its coordinator has forgotten, with all who were in it.
        anew = now.generation <= max(1, self.plan.generation)
        sure = now.round_ms < settings.rebalance_timeout_ms and not anew
        return settings.grace_ms + (0 if sure else settings.lease_ms)

    def _holders(self, present: Mapping[str, WorkerSays]) -> dict[Instance, Holder]:
        """Who may be doing what: those who are gone, by the plan before, and those who are there, by their own words.

        What one that leaves did stays its own until it is gone, for when it comes back.
        """
        holders = {}
        held = _held(present)
        for instance, holder in self.plan.holders.items():
            if holder == SOMEBODY and instance in held:
                continue
            worker = present.get(holder.member_id)
            if worker is None or worker.leaving or instance in worker.holds:
                holders[instance] = holder
        for worker in present.values():
            for instance in worker.holds:
                holders.setdefault(instance, worker.holder)
        return holders

    def _wait_for_the_topic(
        self, now: Round, base: int, present: Mapping[str, WorkerSays], holders: dict[Instance, Holder]
    ) -> Decision:
        """Who has not read what others have read starts nothing, and ends nothing."""
        kept = {
            instance: holder
            for instance, holder in self.plan.assigned.items()
            if holder.member_id in present and holders.get(instance) == holder
        }
        self.plan = Plan(
            generation=now.generation,
            base=base,
            config_offset=self.plan.config_offset,
            assigned=MappingProxyType(kept),
            holders=MappingProxyType(holders),
            releasing=_releasing(present, kept),
            left=self.plan.left,
        )
        return Decision(plan=self.plan, again_at_ms=now.now_ms + self._settings.behind_ms)

    def _free(
        self, now: Round, present: Mapping[str, WorkerSays], holders: dict[Instance, Holder]
    ) -> tuple[dict[Instance, "_Claim"], list[int]]:
        """Who has a claim to each wanted instance; and when something that waits for nothing but time may be given."""
        by_url: dict[str, list[WorkerSays]] = {}
        for worker in present.values():
            by_url.setdefault(worker.holder.url, []).append(worker)
        doing: dict[Instance, set[str]] = {}
        for worker in present.values():
            for instance in worker.holds:
                doing.setdefault(instance, set()).add(worker.holder.member_id)
        claims, waits = {}, []
        for instance, holder in list(holders.items()):
            if holder.member_id in present:
                continue
            since_ms, wait_ms = self._gone_ms[holder.member_id]
            back = [worker for worker in by_url.get(holder.url, ()) if not worker.leaving]
            over = now.now_ms >= since_ms + wait_ms
            if over or (len(back) == 1 and holder.member_id in self.plan.left):
                del holders[instance]
                prefers = back[0].holder.member_id if len(back) == 1 else None
                claims[instance] = _Claim(prefers=prefers, doing=frozenset(doing.get(instance, ())))
            else:  # what is wanted no longer too: whoever waits for its end has to hear of it
                waits.append(since_ms + wait_ms)
        for instance in now.wanted - holders.keys() - claims.keys():
            claims[instance] = _Claim(prefers=None, doing=frozenset())
        for instance, holder in holders.items():
            if holder.member_id in present and not present[holder.member_id].leaving and instance in now.wanted:
                mine = self.plan.assigned.get(instance) == holder or instance not in self.plan.holders
                claims[instance] = _Claim(
                    prefers=holder.member_id if mine else None, doing=frozenset(doing.get(instance, ()))
                )
        return claims, waits

    # ------------------------------------------------------------------ even load

    def _share(
        self, wanted: list[Instance], present: Mapping[str, WorkerSays], claims: Mapping[Instance, "_Claim"]
    ) -> dict[Instance, Holder]:
        """What can be given now of an even distribution of all that is wanted."""
        takers = sorted(member_id for member_id, worker in present.items() if not worker.leaving)
        if not takers:
            return {}
        given: dict[str, list[Instance]] = {member_id: [] for member_id in takers}
        loose = []
        for instance in wanted:
            claim = claims.get(instance)
            if claim is not None and claim.prefers in given:
                given[claim.prefers].append(instance)
            elif claim is not None:
                loose.append(instance)
        # What waits for the worker that is gone is counted as somebody's, so that it moves nothing when it is given.
        least, more = divmod(len(wanted), len(takers))
        ranked = sorted(takers, key=lambda member_id: (-len(given[member_id]), member_id))
        room = {member_id: least + (rank < more) for rank, member_id in enumerate(ranked)}
        for member_id in takers:
            loose += given[member_id][room[member_id] :]
            del given[member_id][room[member_id] :]
        _fill(given, room, loose)
        return {
            instance: present[member_id].holder
            for member_id, instances in given.items()
            for instance in instances
            if claims[instance].doing <= {member_id}
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """Who should have an instance if that is even, and who of those present may be doing it."""

    prefers: str | None
    doing: frozenset[str]


def _held(present: Mapping[str, WorkerSays]) -> frozenset[Instance]:
    """What somebody has who is there, so that nobody else was given it."""
    return frozenset(instance for worker in present.values() for instance in worker.holds - worker.stale)


def _releasing(
    present: Mapping[str, WorkerSays], assigned: Mapping[Instance, Holder]
) -> Mapping[str, frozenset[Instance]]:
    found = {
        member_id: frozenset(each for each in worker.holds if assigned.get(each) != worker.holder)
        for member_id, worker in present.items()
    }
    return MappingProxyType({member_id: instances for member_id, instances in found.items() if instances})


def _fill(given: Mapping[str, list[Instance]], room: Mapping[str, int], loose: Iterable[Instance]) -> None:
    """Give what is loose to whoever has least, the tasks of a connector to different workers where that is as even."""
    for instance in sorted(loose):
        takers = [member_id for member_id in sorted(given) if len(given[member_id]) < room[member_id]]
        taker = min(takers, key=lambda member_id: (len(given[member_id]), _siblings(given[member_id], instance)))
        given[taker].append(instance)


def _siblings(instances: Collection[Instance], of: Instance) -> int:
    return sum(instance.connector == of.connector for instance in instances)
