"""Committed offsets and generations through crashes, full disks and topics that come again, thousands of times

Each seed is one machine through a few lives (`tests.sim.coordinator`). What is planted here was a fault of the product
once, and the world has to find it again.

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin.
"""

import os

import pytest
from structlog.testing import capture_logs

from tests.sim.coordinator import CoordinatorSimulation
from tidemill.broker.groups.events import CommittedOffset
from tidemill.broker.groups.kinds import Group
from tidemill.broker.groups.table import GroupTable
from tidemill.broker.groups.topics import Topics

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "160"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
SHARES = 4
LIVES, STEPS = 4, 120
SEEDS_TO_CATCH = 1000


def run(seed: int) -> CoordinatorSimulation:
    """One machine; a failure names its seed."""
    simulation = CoordinatorSimulation(seed)
    try:
        with capture_logs():
            for life in range(LIVES):
                simulation.live(STEPS, power_cut=life % 2 == 0)
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return simulation


def run_until_caught() -> None:
    for seed in range(SEEDS_TO_CATCH):
        run(seed)


@pytest.mark.parametrize("share", range(SHARES))
def test_offsets_keep_to_their_topics_and_groups_to_their_generations(share: int) -> None:
    offsets = generations = asked = refused = 0
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        simulation = run(seed)
        offsets += simulation.own_topic.checked
        generations += simulation.generations.checked
        asked += simulation.answered.asked
        refused += simulation.answered.refused
    if RUNS >= 160:
        assert offsets > 300
        assert generations > 300
        assert asked > 3000
        assert refused > 30, "no log ever refused"


def test_the_same_seed_is_the_same_history() -> None:
    first, again = run(7), run(7)
    assert first.own_topic.meant == again.own_topic.meant
    assert first.kept.acknowledged == again.kept.acknowledged
    assert first.answered.asked == again.answered.asked
    assert first.disk.syncs == again.disk.syncs


def test_the_world_catches_offsets_that_go_by_the_name_of_their_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_name(self: Topics, name: str, _offset: CommittedOffset) -> bool:
        return name in self.image.topics

    monkeypatch.setattr(Topics, "has", by_name)
    with pytest.raises(AssertionError, match="was committed for"):
        run_until_caught()


def test_the_world_catches_a_group_that_is_dropped_while_its_record_is_on_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(_self: GroupTable, _group: Group) -> bool:
        return False

    monkeypatch.setattr(GroupTable, "is_written_about", never)
    with pytest.raises(AssertionError, match="generation"):
        run_until_caught()
