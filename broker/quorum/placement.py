"""Which brokers are to hold a new partition

Brokers stand in a ring in which racks take turns. Partitions go around it from a place that the topic's id says, so
that topics of one partition do not all begin at the same broker: who is met leads. The other replicas are the next ones
in the ring whose racks do not have one yet; when all racks have, racks do not count any more. With each round the
others begin one place further on, so that what a broker leads does not all go to the same other one when it is away.

A broker that is fenced or about to leave comes last: it gets a replica only where there are not enough others, and
never leads. All follows from the image and the id, so a decision that is repeated is the same.

Not here: moving what exists (`tidemill.core.client.balance`).
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest

from tidemill.broker.quorum.image import BrokerImage
from tidemill.core.errors import InvalidReplicationFactor


def place(
    brokers: Mapping[int, BrokerImage], topic_id: uuid.UUID, *, first: int, count: int, factor: int
) -> list[tuple[int, ...]]:
    """The replicas of partitions `first .. first + count - 1`, who is to lead in front.

    Raises InvalidReplicationFactor.
    """
    if factor < 1:
        raise InvalidReplicationFactor(f"a replication factor is at least 1, not {factor}")
    ring = striped({node: each.rack for node, each in brokers.items() if each.active})
    rest = sorted(brokers.keys() - set(ring))
    if factor > len(ring) + len(rest) or not ring:
        raise InvalidReplicationFactor(
            f"replication factor {factor} is larger than the number of available brokers, {len(ring)}"
        )
    racks = {node: brokers[node].rack for node in ring}
    start = topic_id.int % len(ring)
    turn = topic_id.int // len(ring)
    known: dict[tuple[int, int], tuple[int, ...]] = {}
    placed: list[tuple[int, ...]] = []
    for index in range(first, first + count):
        rounds, lead = divmod(start + index, len(ring))
        way = lead, (turn + rounds) % max(1, len(ring) - 1)
        nodes = known.get(way)
        if nodes is None:
            nodes = known[way] = _spread(ring, racks, *way, min(factor, len(ring)))
        late = [rest[(index + step) % len(rest)] for step in range(factor - len(nodes))]
        placed.append((*nodes, *late))
    return placed


def striped(racks: Mapping[int, str | None]) -> list[int]:
    """The nodes in an order in which racks take turns, each by its own ids; those without a rack are one."""
    by_rack: dict[str, list[int]] = {}
    for node in sorted(racks):
        by_rack.setdefault(racks[node] or "", []).append(node)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [node for each in rounds for node in each if node is not None]


def _spread(ring: Sequence[int], racks: Mapping[int, str | None], lead: int, turn: int, factor: int) -> tuple[int, ...]:
    """The one at `lead` and as many others as there are to be."""
    others = len(ring) - 1
    following = [ring[(lead + 1 + (turn + step) % others) % len(ring)] for step in range(others)]
    nodes = [ring[lead]]
    while len(nodes) < factor:
        nodes.append(_next(following, nodes, racks))
    return tuple(nodes)


def _next(following: Sequence[int], taken: Collection[int], racks: Mapping[int, str | None]) -> int:
    seen = {racks[node] for node in taken}
    left = [node for node in following if node not in taken]
    return next((node for node in left if racks[node] not in seen), left[0])
