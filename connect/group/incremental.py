"""Incremental cooperative rebalancing (KIP-415), as the leader decides it

Every round the leader hears what each worker has, and tells each what comes to it and what goes. Work that stays goes
on through the round. Nothing is given to one worker while another says that it has it: what moves is revoked in one
round, and when its worker has ended it, joins again and no longer has it, it is given to another.

- What was revoked and has not ended when the next round comes is revoked again: left to its worker, it would end, begin
  anew there, and have to end once more.
- What is wanted no longer is revoked. So is what two workers say they have, from both: one may say it of what ends,
  and begin it again as soon as it is left to it, while the other still does it.
- What is new is given at once, to whoever has least; connectors and tasks are counted apart.
- What a worker had that has gone waits for `delay_max_ms` (`scheduled.rebalance.max.delay.ms`): a worker that is
  restarted comes back, has nothing, and so gets as much as it had. Meanwhile nothing is moved. What is lost while
  others wait goes with them, but not before its worker has surely ended it. Where nobody has gone an assignment was
  lost on its way, and is made again at once.
- A worker that has gone has surely ended everything `GRACE_MS` later: its lease was over before its session. Where the
  round took so long that it may have been removed for joining late, or where the group has begun anew, its lease may
  just have been renewed: then it is a lease longer. Until then all that it had may run (`Changes.may_run`), also what
  is wanted no longer: whoever waits for its end has to know, and if it is wanted again it is given to nobody.
- Who cannot be read (`unread`) keeps what it is known to have and gets nothing.
- Without that the load is made even: who has more than its share gives up so much of it. Two such rounds in a row would
  be one that the first has caused, so before the second there is a pause, of 40 ms and then 40 times as long up to the
  same limit (KAFKA-12495), until a round finds the load even.

What a leader remembers counts only if it has made the assignment that was in force until this round: else somebody else
has led meanwhile, or a round came to nothing. Then it goes by what the workers say, and by the status topic: what is
said there to run, and nobody has, may be ending with a worker that is gone. Apache's leader gives that away at once;
here it waits until it has surely ended, and so it does where there is to be no delay.

Pure: the same rounds give the same assignments.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidemill.connect.herder.placement import CONNECTOR, Instance

NOTHING: Final = frozenset[Instance]()

NEVER: Final = -1
"""The generation of a leader that has not been told of an assignment yet."""

BACKOFF_FACTOR: Final = 40

GRACE_MS: Final = 5_000
"""So long the processes of a worker of ours may outlive its session, if it was killed: as in a group of ours alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What the leader knows when it has to decide; `now_ms` is of a clock that never goes back.

    `completed` is the generation of the assignment that was in force before, as this leader has heard. `round_ms` is
    how long ago the group was surely at rest. `said_to_run` is what the status topic says to run, whoever does it.
    """

    generation: int
    completed: int
    holds: Mapping[str, frozenset[Instance]]  # what each member has, by its own words
    wanted: frozenset[Instance]
    now_ms: int
    round_ms: int
    said_to_run: frozenset[Instance] = NOTHING
    unread: frozenset[str] = frozenset()  # members whose words were not understood


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What comes to each member and goes from it, what it has then, and after how long there has to be another round.

    A delay of 0 means no other round. What `may_run` is done by nobody who is there, but perhaps by one that has gone.
    """

    assigned: Mapping[str, frozenset[Instance]]
    revoked: Mapping[str, frozenset[Instance]]
    owned: Mapping[str, frozenset[Instance]]
    delay_ms: int
    may_run: frozenset[Instance] = NOTHING


class Assignor:
    """What a leader remembers between rounds, and how it decides."""

    def __init__(self, delay_max_ms: int, *, lease_ms: int, rebalance_timeout_ms: int) -> None:
        self._delay_max_ms = delay_max_ms
        self._lease_ms = lease_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._generation = NEVER  # of the last assignment that it made
        self._known = NOTHING  # what somebody was to have by that assignment, and what waited
        self._revoked: Mapping[str, frozenset[Instance]] = {}
        self._members = frozenset[str]()  # of that round
        self._until_ms: int | None = None  # what has lost its worker waits, and nothing is moved
        self._waiting = NOTHING
        self._ending: dict[Instance, int] = {}  # of workers that have gone: until when it may run
        self._has_moved = False  # the last round that was free to made the load even
        self._pauses = 0  # between such rounds in a row

    def decide(self, now: Round) -> Changes:
        """The next assignment, which is remembered."""
        active = frozenset[Instance]().union(*now.holds.values())
        remembers = self._generation == now.completed == now.generation - 1
        missing = now.wanted - active
        gone = (self._expected(now) if remembers else now.said_to_run) - active
        self._notice_ends(gone, active, now, remembers=remembers)
        lost = missing & (gone | self._ending.keys())
        stays = now.wanted - _doubles(now.holds.values())
        ending = self._revoked if remembers else {}
        owned = {member_id: (held & stays) - ending.get(member_id, NOTHING) for member_id, held in now.holds.items()}
        waiting = self._wait(lost, now, remembers=remembers)
        takers = {member_id: held for member_id, held in owned.items() if member_id not in now.unread}
        if self._until_ms is None:
            kept = frozenset[Instance]().union(*(owned[member_id] for member_id in now.unread))
            owned |= self._even_out(takers, now.wanted - kept, now)
            takers = {member_id: owned[member_id] for member_id in takers}
        revoked = {member_id: held - owned[member_id] for member_id, held in now.holds.items()}
        owned |= _filled(takers, missing - waiting)
        assigned = {member_id: owned[member_id] - held for member_id, held in now.holds.items()}
        assert not frozenset[Instance]().union(*assigned.values()) & active, "what somebody has is given to nobody"
        self._generation, self._members = now.generation, frozenset(now.holds)
        self._known, self._revoked = waiting.union(*owned.values()), revoked
        return Changes(
            assigned=assigned,
            revoked=revoked,
            owned=owned,
            delay_ms=self._delay_ms(now),
            may_run=waiting | self._ending.keys(),
        )

    def _delay_ms(self, now: Round) -> int:
        """When what waits may be given; and when what nobody wants has ended, for whoever waits for that."""
        unwanted = [until_ms for instance, until_ms in self._ending.items() if instance not in now.wanted]
        times = [*([] if self._until_ms is None else [self._until_ms]), *([max(unwanted)] if unwanted else [])]
        return min(times, default=now.now_ms) - now.now_ms

    def _expected(self, now: Round) -> frozenset[Instance]:
        """What was somebody's, or was revoked from somebody who has gone and may not have ended it."""
        return self._known.union(*(held for member_id, held in self._revoked.items() if member_id not in now.holds))

    def _notice_ends(
        self, gone: frozenset[Instance], active: frozenset[Instance], now: Round, *, remembers: bool
    ) -> None:
        """Keep until when those may do something who have gone."""
        over = frozenset(each for each, until_ms in self._ending.items() if now.now_ms >= until_ms)
        self._ending = {each: at for each, at in self._ending.items() if each not in over and each not in active}
        if remembers and self._members <= now.holds.keys():
            return
        until_ms = now.now_ms + self._grace_ms(now)
        new = gone - (self._waiting | over if remembers else NOTHING)
        self._ending = {**dict.fromkeys(new, until_ms), **self._ending}

    def _grace_ms(self, now: Round) -> int:
        # A group of the first generation may be one that its coordinator has forgotten, with all who were in it.
        anew = now.generation <= max(1, self._generation)
        sure = now.round_ms < self._rebalance_timeout_ms and not anew
        return GRACE_MS + (0 if sure else self._lease_ms)

    def _wait(self, lost: frozenset[Instance], now: Round, *, remembers: bool) -> frozenset[Instance]:
        """What of the lost waits for its worker; sets until when, also if it is a pause that goes on."""
        if self._until_ms is not None and now.now_ms >= self._until_ms:
            self._until_ms, self._has_moved = None, False
            lost -= self._waiting if remembers else NOTHING
            self._waiting = NOTHING
        if not lost and not self._has_moved:
            self._until_ms = None
        ends_ms = max((self._ending[each] for each in lost if each in self._ending), default=None)
        if ends_ms is not None and lost - self._waiting:
            begins = remembers and self._until_ms is None
            self._until_ms = max(self._until_ms or 0, ends_ms, now.now_ms + self._delay_max_ms if begins else 0)
        # What is lost though nobody has gone is not waited for in a pause either.
        self._waiting = NOTHING if self._until_ms is None else lost & (self._ending.keys() | self._waiting)
        return self._waiting

    def _even_out(
        self, owned: dict[str, frozenset[Instance]], wanted: frozenset[Instance], now: Round
    ) -> dict[str, frozenset[Instance]]:
        """What each member keeps, if it is time to give something up."""
        kept = _evened(owned, wanted)
        if kept == owned:
            self._has_moved, self._pauses = False, 0
            return owned
        if self._has_moved and self._delay_max_ms:
            self._pauses += 1
            pause_ms = min(self._delay_max_ms, BACKOFF_FACTOR ** min(self._pauses, 10))
            self._until_ms = now.now_ms + pause_ms
            return owned
        self._has_moved = True
        return kept


def _doubles(holds: Iterable[frozenset[Instance]]) -> frozenset[Instance]:
    """What more than one has."""
    counts = Counter(each for held in holds for each in held)
    return frozenset(each for each, count in counts.items() if count > 1)


def _kinds(instances: Collection[Instance]) -> tuple[list[Instance], list[Instance]]:
    """Connectors and tasks, each in order."""
    ordered = sorted(instances)
    return [each for each in ordered if each.task == CONNECTOR], [each for each in ordered if each.task != CONNECTOR]


def _evened(owned: Mapping[str, frozenset[Instance]], wanted: frozenset[Instance]) -> dict[str, frozenset[Instance]]:
    """What each member keeps of what it has: no more than its share of all that is wanted."""
    kept = dict.fromkeys(owned, NOTHING)
    for kind, total in enumerate(map(len, _kinds(wanted))):
        least, more = divmod(total, len(owned))
        parts = {member_id: _kinds(held)[kind] for member_id, held in owned.items()}
        for member_id in sorted(parts, key=lambda each: (-len(parts[each]), each)):
            room = least + (more > 0)
            more -= len(parts[member_id]) > least
            kept[member_id] |= frozenset(parts[member_id][:room])
    return kept


def _filled(owned: Mapping[str, frozenset[Instance]], loose: Collection[Instance]) -> dict[str, frozenset[Instance]]:
    """What is loose is given to whoever has least, the tasks of a connector to different workers where that is even."""
    filled = {member_id: set(held) for member_id, held in owned.items()}
    for kind, instances in enumerate(_kinds(loose)):
        counts = {member_id: len(_kinds(held)[kind]) for member_id, held in owned.items()}
        for instance in instances:
            taker = min(counts, key=_rank(counts, filled, instance.connector))
            filled[taker].add(instance)
            counts[taker] += 1
    return {member_id: frozenset(held) for member_id, held in filled.items()}


def _rank(
    counts: Mapping[str, int], filled: Mapping[str, Iterable[Instance]], connector: str
) -> Callable[[str], tuple[int, int, str]]:
    def rank(member_id: str) -> tuple[int, int, str]:
        siblings = sum(each.connector == connector for each in filled[member_id])
        return counts[member_id], siblings, member_id

    return rank
