"""What is broken, when and for how long: all of it from a seed

A fault harms one node, or what two of them hear of each other. One in four is joined by another one that harms another
node; a quarter of the rests between them are long enough for everything to be well again. No node is harmed by two
faults at once, so each has an end that puts everything back.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

DOWN = ("kill", "pause", "restart", "blackout")
NETWORK = ("cut-off", "deaf", "mute", "split", "one-way", "unseen", "slow", "lossy")
DISK = ("full-disk", "stalled-disk")
CLOCK = ("clock",)
KINDS = (*DOWN, *NETWORK, *DISK, *CLOCK)
SECONDS: dict[str, tuple[float, float]] = {
    "kill": (0.5, 12),
    "pause": (1, 20),
    "restart": (0, 4),
    "blackout": (0.5, 4),
    "cut-off": (1, 25),
    "deaf": (1, 25),
    "mute": (1, 25),
    "split": (1, 25),
    "one-way": (1, 25),
    "unseen": (1, 15),
    "slow": (5, 20),
    "lossy": (5, 20),
    "full-disk": (3, 20),
    "stalled-disk": (1, 12),
    "clock": (2, 20),
}
"""How long each lasts. Sessions end after 9 s and connections after up to 30, so both sides of those are met."""
RARE = {"blackout": 0.3, "slow": 0.7, "lossy": 0.7}
JOINED = 0.25
LONG_REST = 0.25
SHORT_S = 3.0
"""The longest of a sampler's faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One of them: begins `at` seconds after the first may, and is over `seconds` later.

    The first of `nodes` is harmed; a second one is whom it does not hear, or is not heard by. `amount` is between 0 and
    1, and means to each kind what it likes.
    """

    at: float
    kind: str
    nodes: tuple[int, ...]
    seconds: float
    amount: float


def choose(chance: random.Random, at: float, kinds: Sequence[str], nodes: Sequence[int]) -> Fault:
    """Any of those kinds to any of those nodes."""
    possible = [kind for kind in kinds if len(nodes) > 1 or kind not in ("split", "one-way")]
    kind = chance.choices(possible, [RARE.get(kind, 1.0) for kind in possible])[0]
    return fault(chance, at, kind, nodes)


def fault(chance: random.Random, at: float, kind: str, nodes: Sequence[int]) -> Fault:
    """One of that kind."""
    count = {"split": 2, "one-way": 2, "blackout": len(nodes)}.get(kind, 1)
    return Fault(
        at=round(at, 1),
        kind=kind,
        nodes=tuple(chance.sample(list(nodes), count)),
        seconds=round(chance.uniform(*SECONDS[kind]), 1),
        amount=round(chance.random(), 3),
    )


def at_random(seed: int, seconds: float, nodes: Sequence[int], kinds: Sequence[str] = KINDS) -> list[Fault]:
    """Faults that are all over after `seconds`."""
    chance = random.Random(seed)
    found: list[Fault] = []
    at = 2.0
    while True:
        first = choose(chance, at, kinds, nodes)
        end = first.at + first.seconds
        others = [node for node in nodes if node not in first.nodes]
        joined = [kind for kind in kinds if kind != "blackout"]
        if others and joined and first.seconds > 1 and chance.random() < JOINED:
            second = choose(chance, chance.uniform(first.at, end), joined, others)
            end = max(end, second.at + second.seconds)
            together = [first, second]
        else:
            together = [first]
        if end > seconds:
            return found
        found.extend(together)
        at = end + (chance.uniform(20, 40) if chance.random() < LONG_REST else chance.uniform(1, 8))


def each_once(seed: int, nodes: Sequence[int], kinds: Sequence[str] = KINDS) -> list[Fault]:
    """One short fault of each kind, one after the other."""
    chance = random.Random(seed)
    found: list[Fault] = []
    at = 1.0
    for kind in chance.sample(list(kinds), len(kinds)):
        made = fault(chance, at, kind, nodes)
        seconds = min(made.seconds, SHORT_S)
        found.append(Fault(at=made.at, kind=kind, nodes=made.nodes, seconds=seconds, amount=made.amount))
        at = made.at + seconds + 1.5
    return found
