"""One world from its birth to what is to be told of it, for whoever lives through many"""

import gc
from typing import NamedTuple

import pytest

from tests.sim.world.branches import HEARD, count_calls, refusals
from tests.sim.world.plan import Plan
from tests.sim.world.world import World, smallest


class Lived(NamedTuple):
    """One world that is over; `failure` is empty if all was well."""

    nodes: int
    events: int
    simulated_s: float
    faults: dict[str, int]
    branches: dict[str, int]
    plan: str
    failure: str


def collect_rarely() -> None:
    """For a process of nothing but worlds: each is gone within seconds, and a sixth of the time went into looking."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def live(plan: Plan, *, shrink: bool = True) -> Lived:
    """In a process of its own; never raises."""
    world = World(plan)
    failure: BaseException | None = None
    with pytest.MonkeyPatch.context() as patch:
        calls = count_calls(patch)
        try:
            world.run()
        except BaseException as error:
            failure = error
    heard = refusals(world.trace)
    branches = {**calls, **{why: heard[why] for why in HEARD if heard[why]}}
    found = smallest(plan, failure) if shrink and failure is not None else plan
    said = "" if failure is None else f"{type(failure).__name__}: {failure}"
    return Lived(plan.nodes, len(world.trace), world.lived_s, world.faults, branches, found.text(), said)
