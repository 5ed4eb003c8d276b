"""One world from its birth to what is to be told of it, for whoever lives through many"""

from typing import NamedTuple

from tests.sim.world.plan import Plan
from tests.sim.world.world import World, smallest


class Lived(NamedTuple):
    """One world that is over; `failure` is empty if all was well."""

    seed: int
    simulated_s: float
    faults: dict[str, int]
    plan: str
    failure: str


def live(seed: int, *, shrink: bool = True) -> Lived:
    """In a process of its own; never raises."""
    plan = Plan(seed)
    world = World(plan)
    try:
        world.run()
    except BaseException as error:
        found = smallest(plan, error) if shrink else plan
        return Lived(seed, world.lived_s, world.faults, found.text(), f"{type(error).__name__}: {error}")
    return Lived(seed, world.lived_s, world.faults, plan.text(), "")
