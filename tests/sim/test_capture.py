"""Snapshot, slot and offset through kills at every step, thousands of times: the topic ends as the table

Each seed is one database and a capture of many lives (`tests.sim.capture`). What is planted here was a fault of the
product once, and the world has to find it again.

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin.
"""

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.sim.capture import CaptureWorld
from tidemill.connect.plugins.postgres.life import (
    Action,
    Announce,
    Announced,
    Complete,
    Entered,
    Event,
    Life,
    LifeSettings,
    Looked,
    Read,
    Stream,
)

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "160"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
SHARES = 4
LIVES = 8
SEEDS_TO_CATCH = 1000
MISMATCH = {"initial": "strict", "always": "strict", "when_needed": "trust_slot"}


def run(seed: int, mode: str = "initial", make_life: Callable[[LifeSettings], Life] = Life) -> CaptureWorld:
    """One world; a failure names its seed."""
    world = CaptureWorld(seed, mode=mode, mismatch=MISMATCH[mode], make_life=make_life)
    try:
        world.run(LIVES)
        table, topic = world.difference()
        if world.slots_lost:  # deletes that were lost with a slot can never be known
            topic = {key: value for key, value in topic.items() if key in table}
        assert topic == table
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return world


@pytest.mark.parametrize("mode", ["initial", "always", "when_needed"])
@pytest.mark.parametrize("share", range(SHARES))
def test_the_topic_ends_as_the_table(mode: str, share: int) -> None:
    kills = snapshots = again = lost = 0
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        world = run(seed, mode)
        kills += world.kills
        snapshots += world.snapshots
        again += world.snapshots_again
        lost += world.slots_lost
    if RUNS >= 160:
        assert kills > RUNS
        assert snapshots > RUNS / SHARES
        assert again > 5, "no table was ever rewritten in time"
        assert bool(lost) == (mode == "when_needed")


def test_the_same_seed_is_the_same_history() -> None:
    first, second = run(7), run(7)
    assert first.broker.topic == second.broker.topic
    assert first.broker.offset == second.broker.offset


def caught(make_life: Callable[[LifeSettings], Life], mode: str) -> bool:
    """Whether one of the seeds fails."""
    for seed in range(SEEDS_TO_CATCH):
        try:
            run(seed, mode, make_life)
        except AssertionError:
            return True
    return False


class StreamsFromTheSnapshot(Life):
    """Streams from where the newest snapshot was taken, though the slot stands further back."""

    def step(self, event: Event) -> list[Action]:
        if isinstance(event, Entered):
            self.seen_lsn = event.lsn
        actions = super().step(event)
        return [self._moved(action) for action in actions]

    def _moved(self, action: Action) -> Action:
        lsn = getattr(self, "seen_lsn", None)
        if lsn is None:
            return action
        if isinstance(action, Stream):
            return replace(action, lsn=lsn)
        if isinstance(action, Read | Complete):
            return replace(action, offset={**action.offset, "lsn": lsn})
        return action


class NeverLooks(Life):
    """Reads the tables as they look in the snapshot, whatever happened to them since."""

    def step(self, event: Event) -> list[Action]:
        return super().step(Looked(changed=None) if isinstance(event, Looked) else event)


class SaysNothing(Life):
    """Replaces the slot before anybody can know that a snapshot is under way."""

    def step(self, event: Event) -> list[Action]:
        actions = super().step(event)
        return super().step(Announced()) if actions and isinstance(actions[0], Announce) else actions


def test_the_world_catches_rows_that_were_deleted_while_nobody_listened() -> None:
    assert caught(StreamsFromTheSnapshot, "initial")


def test_the_world_catches_a_table_that_was_rewritten_before_it_was_read() -> None:
    assert caught(NeverLooks, "initial")


def test_the_world_catches_a_new_slot_beside_an_old_offset() -> None:
    assert caught(SaysNothing, "when_needed")
