"""Replicas on the move: what it costs, what is held back, how far it is

Pure: what is known of a cluster goes in, sentences, settings and numbers come out (`reassigning` asks and acts).

The throttle is Kafka's: a rate for each broker, as the one who sends and as the one who fetches, and for each topic the
replicas that it is about. Of a partition that moves these are who has it now, as senders, and who gets it, as fetchers.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidemill.core.client.balance import BalancePlan, Holdings, Move, Place

RATE_KEYS: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_LIST, FOLLOWER_LIST = LIST_KEYS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A cluster before something is moved: `ongoing` is what moves already, `free` the bytes that brokers have left."""

    holdings: Holdings
    sizes: Mapping[Place, int] = field(default_factory=dict)
    ongoing: tuple[Move, ...] = ()
    free: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """What a plan means for one broker."""

    node_id: int
    fenced: bool
    replicas: tuple[int, int]
    leaders: tuple[int, int]
    size_bytes: tuple[int, int]
    incoming_bytes: int


def broker_rows(situation: Situation, plan: BalancePlan) -> list[BrokerRow]:
    """One row for each broker, before and after."""
    sizes, replicas = situation.sizes, situation.holdings.replicas
    after = {**replicas, **{Place(move.topic, move.partition): move.after for move in plan.moves}}
    held = [_bytes_of(each, sizes) for each in (replicas, after)]
    incoming = incoming_bytes(plan.moves, sizes)
    nodes = sorted({*situation.holdings.racks, *plan.replicas_before, *plan.replicas_after})
    return [
        BrokerRow(
            node_id=node,
            fenced=node in situation.holdings.away,
            replicas=(plan.replicas_before.get(node, 0), plan.replicas_after.get(node, 0)),
            leaders=(plan.leaders_before.get(node, 0), plan.leaders_after.get(node, 0)),
            size_bytes=(held[0][node], held[1][node]),
            incoming_bytes=incoming[node],
        )
        for node in nodes
    ]


def _bytes_of(replicas: Mapping[Place, tuple[int, ...]], sizes: Mapping[Place, int]) -> Counter[int]:
    found: Counter[int] = Counter()
    for place, nodes in replicas.items():
        for node in nodes:
            found[node] += sizes.get(place, 0)
    return found


def incoming_bytes(moves: Iterable[Move], sizes: Mapping[Place, int]) -> Counter[int]:
    """What each broker has to copy."""
    found: Counter[int] = Counter()
    for move in moves:
        for node in set(move.after) - set(move.before):
            found[node] += sizes.get(Place(move.topic, move.partition), 0)
    return found


def objections(situation: Situation, plan: BalancePlan, leaving: Collection[int]) -> Iterator[str]:
    """Why a plan is not to be carried out, a sentence each."""
    racks = situation.holdings.racks
    unknown = sorted(node for node in leaving if node not in racks and not plan.replicas_before.get(node))
    for node in unknown:
        yield f"there is no broker {node}; the brokers are {', '.join(map(str, sorted(racks)))}"
    after = {**situation.holdings.replicas, **{Place(each.topic, each.partition): each.after for each in plan.moves}}
    running = set(racks) - situation.holdings.away
    for node in leaving:
        holds = [place for place, nodes in after.items() if node in nodes]
        only = [place for place in holds if running.isdisjoint(after[place])]
        kept = [place for place in holds if place not in only]
        if only:
            yield (
                f"broker {node} cannot be emptied: no broker that runs has {named(only)}, so there is nothing to copy "
                "from; start it, or delete the topics"
            )
        if kept:
            yield (
                f"broker {node} cannot be emptied: {named(kept)} would have fewer replicas than now, for there are too "
                "few other brokers that run; start another one, or give the topics fewer replicas"
            )
    for node, size in sorted(incoming_bytes(plan.moves, situation.sizes).items()):
        if size > situation.free.get(node, size):
            yield (
                f"broker {node} would get {told_bytes(size)} and has room for {told_bytes(situation.free[node])}: "
                "give it more, or drop data first"
            )


def left_out(situation: Situation, leaving: Collection[int]) -> str:
    """Of brokers that get nothing because they are not there, and do not leave, if there are any: a sentence."""
    away = ", ".join(map(str, sorted(situation.holdings.away.difference(leaving))))
    return away and f"fenced, so nothing is moved there: broker {away}; start it, or drain and unregister it"


def changed_since(moves: Iterable[Move], situation: Situation) -> list[Place]:
    """Partitions that are not where they were when `moves` were planned, or that somebody else moves."""
    replicas = situation.holdings.replicas
    places = [(Place(each.topic, each.partition), each.before) for each in moves]
    return [place for place, before in places if replicas.get(place) != before]


def still_held(situation: Situation, node: int) -> list[Place]:
    """Partitions that a broker has, or gets, or gives away at this moment."""
    moving = {Place(each.topic, each.partition): (*each.before, *each.after) for each in situation.ongoing}
    return [place for place, nodes in {**situation.holdings.replicas, **moving}.items() if node in nodes]


def throttled_replicas(moves: Iterable[Move]) -> dict[str, dict[str, str]]:
    """For each topic the two settings that name the replicas which are held back."""
    senders: dict[str, list[str]] = {}
    fetchers: dict[str, list[str]] = {}
    for move in moves:
        new = [node for node in move.after if node not in move.before]
        if new:
            senders.setdefault(move.topic, []).extend(f"{move.partition}:{node}" for node in move.before)
            fetchers.setdefault(move.topic, []).extend(f"{move.partition}:{node}" for node in new)
    return {
        topic: {LEADER_LIST: ",".join(senders[topic]), FOLLOWER_LIST: ",".join(fetchers[topic])} for topic in senders
    }


EVERYBODY: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttles:
    """What holds replicas back: the rates that brokers have and the lists that topics have, as far as they are set."""

    rates: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    lists: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def of_moves(self) -> bool:
        """Whether single replicas are named, as somebody does who moves them."""
        return bool(self.lists_without())

    @property
    def standing(self) -> list[str]:
        """Topics all replicas of which are held back, whether they move or not."""
        return [
            topic for topic, settings in self.lists.items() if any(_names_all(value) for value in settings.values())
        ]

    def lists_with(self, more: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str | None]]:
        """What to set so that those replicas are named too."""
        found: dict[str, dict[str, str | None]] = {}
        for topic, settings in more.items():
            had = self.lists.get(topic, {})
            joined: dict[str, str | None] = {
                key: ",".join(dict.fromkeys([*filter(None, had.get(key, "").split(",")), *value.split(",")]))
                for key, value in settings.items()
                if not _names_all(had.get(key, ""))
            }
            if joined:
                found[topic] = joined
        return found

    def lists_without(self) -> dict[str, dict[str, str | None]]:
        """What to set so that no single replica is named."""
        named_singly = {
            topic: {key: None for key, value in settings.items() if not _names_all(value)}
            for topic, settings in self.lists.items()
        }
        return {topic: dict(settings) for topic, settings in named_singly.items() if settings}

    def told_rates(self) -> str:
        """The rates, to be read by somebody who may have to set them again."""
        return "; ".join(
            f"broker {node}: {', '.join(f'{key}={value}' for key, value in sorted(settings.items()))}"
            for node, settings in sorted(self.rates.items())
        )


def _names_all(listed: str) -> bool:
    return EVERYBODY in listed.split(",")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far moves have come; `missing` are brokers that have to take part and do not run."""

    moved: int
    partitions: int
    copied_bytes: int
    total_bytes: int
    missing: tuple[int, ...] = ()

    @property
    def over(self) -> bool:
        """Whether nothing moves any more."""
        return self.moved >= self.partitions


def progress(
    moves: Iterable[Move],
    sizes: Mapping[Place, int],
    under_way: Collection[Place],
    there: Mapping[tuple[Place, int], int],
    running: Collection[int],
) -> Progress:
    """Where `moves` are: `under_way` is what still moves, `there` the bytes that a broker has of a partition."""
    moved = partitions = copied = total = 0
    missing: set[int] = set()
    for move in moves:
        place = Place(move.topic, move.partition)
        size = sizes.get(place, 0)
        new = set(move.after) - set(move.before)
        partitions += 1
        total += size * len(new)
        if place not in under_way:
            moved += 1
            copied += size * len(new)
        else:
            copied += sum(min(size, there.get((place, node), 0)) for node in new)
            missing |= new - set(running)
    return Progress(
        moved=moved, partitions=partitions, copied_bytes=copied, total_bytes=total, missing=tuple(sorted(missing))
    )


def named(places: Iterable[Place]) -> str:
    """Some of the partitions by name, and how many more.

    >>> named([Place("t", 0), Place("t", 1)])
    't-0, t-1'
    """
    texts = [f"{place.topic}-{place.partition}" for place in places]
    more = len(texts) - NAMED_MAX
    return ", ".join(texts[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def told_bytes(size: float) -> str:
    """A size as people read it.

    >>> told_bytes(900), told_bytes(3 * 2**20), told_bytes(5.5 * 2**30)
    ('900 B', '3.0 MiB', '5.5 GiB')
    """
    if size < 2**10:
        return f"{size:.0f} B"
    for unit, limit in (("KiB", 2**20), ("MiB", 2**30), ("GiB", 2**40)):
        if size < limit:
            return f"{size * 2**10 / limit:.1f} {unit}"
    return f"{size / 2**40:.1f} TiB"
