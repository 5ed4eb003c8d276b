"""What moves make a cluster even, and empty a broker that leaves

A plan moves little: first what a broker that leaves has to give; then, from whoever holds most to whoever holds least,
for as long as that makes them more even; a partition is never in fewer racks than before. It is made step by step, so
a cleverer one might save a copy now and then. Who prefers to lead is evened at last, within the replicas that there
are: that is only their order, and costs no copy.

Partitions that are on their way already stay out of it. Brokers that are away get nothing, and lose nothing by that
alone: they may be back. What no broker that runs has stays where it is: there is nothing to copy from. Pure; a plan for
100,000 partitions takes seconds, so it is for a thread.

Not here: carrying it out, which is Kafka's AlterPartitionReassignments.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Brokers with their racks, those of them that are `away`, and who holds each partition, who is preferred in front.

    Partitions that are being moved are left out.
    """

    racks: Mapping[int, str | None]
    away: frozenset[int] = frozenset()
    replicas: Mapping[Place, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition, by which brokers it is held and by which it is to be, who is to lead in front."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def copies(self) -> int:
        """Replicas that have to be copied; 0 if it is only the order."""
        return len(set(self.after) - set(self.before))


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancePlan:
    """What moves, and how many replicas and preferred leaders each broker has of it before and after."""

    moves: tuple[Move, ...]
    replicas_before: Mapping[int, int]
    replicas_after: Mapping[int, int]
    leaders_before: Mapping[int, int]
    leaders_after: Mapping[int, int]

    @property
    def copies(self) -> int:
        """Replicas that have to be copied."""
        return sum(move.copies for move in self.moves)


def plan(holdings: Holdings, *, leaving: Collection[int] = ()) -> BalancePlan:
    """What to move so that brokers hold and lead the same, and those that are `leaving` nothing."""
    racks, before = holdings.racks, {place: holdings.replicas[place] for place in sorted(holdings.replicas)}
    targets = [node for node in sorted(racks) if node not in holdings.away and node not in leaving]
    balancing = _Balancing(before, targets, racks)
    if targets:
        balancing.move_away({*leaving, *_unknown(before.values(), racks)}, racks.keys() - holdings.away)
        balancing.even_replicas()
        balancing.even_leaders()
    after = balancing.replicas
    return BalancePlan(
        moves=tuple(
            Move(topic=place.topic, partition=place.partition, before=nodes, after=tuple(after[place]))
            for place, nodes in before.items()
            if nodes != tuple(after[place])
        ),
        replicas_before=_held(before.values(), targets),
        replicas_after=_held(after.values(), targets),
        leaders_before=_held((nodes[:1] for nodes in before.values()), targets),
        leaders_after=_held((nodes[:1] for nodes in after.values()), targets),
    )


def _unknown(replicas: Iterable[Sequence[int]], known: Collection[int]) -> set[int]:
    return {node for nodes in replicas for node in nodes if node not in known}


def _held(replicas: Iterable[Sequence[int]], targets: Iterable[int]) -> dict[int, int]:
    held = Counter(dict.fromkeys(targets, 0))
    for nodes in replicas:
        held.update(nodes)
    return dict(sorted(held.items()))


class _Balancing:
    """Mutable: replicas while they are moved about."""

    def __init__(
        self, before: Mapping[Place, Sequence[int]], targets: Sequence[int], racks: Mapping[int, str | None]
    ) -> None:
        self.replicas = {place: list(nodes) for place, nodes in before.items()}
        self._targets = targets
        self._racks = racks
        self._load = _held(before.values(), targets)

    def move_away(self, leaving: Collection[int], running: Collection[int]) -> None:
        """Nothing stays on these, as far as there are others, and somebody to copy from."""
        for nodes in self.replicas.values():
            if not any(node in running for node in nodes):
                continue
            for node in [node for node in nodes if node in leaving]:
                to = self._best(nodes, node)
                if to is not None:
                    self._move(nodes, node, to)

    def _best(self, nodes: Sequence[int], leaving: int) -> int | None:
        """The best to take a replica: a rack of its own, little to hold."""
        racks = {self._racks.get(node) for node in nodes if node != leaving}
        others = [node for node in self._targets if node not in nodes]
        return min(others, key=lambda node: (self._racks[node] in racks, self._load[node], node), default=None)

    def _move(self, nodes: list[int], node: int, to: int) -> None:
        nodes[nodes.index(node)] = to
        self._load[node] -= 1
        self._load[to] += 1

    def even_replicas(self) -> None:
        """From who has more than its share to who has less; then whatever racks have not let come even that way."""
        holders: dict[int, dict[Place, None]] = {node: {} for node in self._targets}
        for place, nodes in self.replicas.items():
            for node in nodes:
                if node in holders:
                    holders[node][place] = None
        self._even(holders, self._shares())
        while self._even(holders, None):
            pass

    def _shares(self) -> dict[int, int]:
        """What each is to have: the same, and one more for those who have most."""
        share, more = divmod(sum(self._load[node] for node in self._targets), len(self._targets))
        by_load = sorted(self._targets, key=lambda node: (-self._load[node], node))
        return {node: share + (number < more) for number, node in enumerate(by_load)}

    def _even(self, holders: Mapping[int, dict[Place, None]], shares: Mapping[int, int] | None) -> bool:
        """Whether something moved. Without shares, nobody is to have two more than another who could have it."""
        moved = False
        for node in sorted(self._targets, key=lambda node: (-self._load[node], node)):
            for place in tuple(holders[node]):
                least = min(self._load[each] for each in self._targets)
                if self._load[node] <= (least + 1 if shares is None else shares[node]):
                    break
                nodes = self.replicas[place]
                to = self._lighter(nodes, node, shares)
                if to is not None:
                    self._move(nodes, node, to)
                    del holders[node][place]
                    holders[to][place] = None
                    moved = True
        return moved

    def _lighter(self, nodes: Sequence[int], node: int, shares: Mapping[int, int] | None) -> int | None:
        """Who could have the replica instead, so that it is in no fewer racks."""
        kept = {self._racks.get(each) for each in nodes if each != node}
        new_rack = self._racks.get(node) not in kept
        others = [
            each
            for each in self._targets
            if self._load[each] < (self._load[node] - 1 if shares is None else shares[each])
            and each not in nodes
            and not (new_rack and self._racks[each] in kept)
        ]
        return min(others, key=lambda each: (self._load[each], each), default=None)

    def even_leaders(self) -> None:
        """Let others be preferred, along chains of brokers where no two alone can change it."""
        led = Counter(nodes[0] for nodes in self.replicas.values())
        handed: _Handed = {node: {} for node in self._targets}
        for place in self.replicas:
            self._offer(place, handed)
        while chain := self._longest_overdue(led, handed):
            for giver, taker in pairwise(chain):
                place = handed[giver][taker].pop()
                nodes = self.replicas[place]
                nodes.remove(taker)
                nodes.insert(0, taker)
                self._offer(place, handed)
            led[chain[0]] -= 1
            led[chain[-1]] += 1

    def _offer(self, place: Place, handed: "_Handed") -> None:
        leader, *others = self.replicas[place]
        if leader in handed:
            for node in others:
                handed[leader].setdefault(node, []).append(place)

    def _longest_overdue(self, led: Mapping[int, int], handed: "_Handed") -> list[int]:
        """The chain from the one who leads most of all who can get rid of something."""
        chains = (self._chain(node, led, handed) for node in sorted(self._targets, key=lambda node: (-led[node], node)))
        return next((chain for chain in chains if chain), [])

    def _chain(self, first: int, led: Mapping[int, int], handed: "_Handed") -> list[int]:
        """From one who leads much to one who leads at least two less, each able to hand something to the next."""
        came_from = {first: first}
        waiting = deque([first])
        while waiting:
            node = waiting.popleft()
            for other in sorted(handed[node]):
                if other in came_from or other not in handed or not self._can_hand(node, other, handed):
                    continue
                came_from[other] = node
                if led[other] + 2 <= led[first]:
                    chain = [other]
                    while chain[-1] != first:
                        chain.append(came_from[chain[-1]])
                    return chain[::-1]
                waiting.append(other)
        return []

    def _can_hand(self, node: int, other: int, handed: "_Handed") -> bool:
        """Whether what is at the end of the list is still led by the one; what is not goes."""
        places = handed[node][other]
        while places and self.replicas[places[-1]][0] != node:
            places.pop()
        return bool(places)


_Handed: TypeAlias = dict[int, dict[int, list[Place]]]
"""By who leads and who could: the partitions, and some that have other leaders by now."""
