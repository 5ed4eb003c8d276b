"""The real metadata log on a disk that loses what was not synced, thousands of times

Each seed is one machine through a few lives. A life is random decisions with snapshots now and then, a full disk, a
failing fsync; it ends with the power cut at any change to the disk, also inside a snapshot or inside the start after
the cut before, with a kill, with a stop in order, or with a disk that failed. Now and then the newest snapshot is
damaged. After each start the image is what a beginning of all decisions leads to, taken one by one from nothing: with
everything that was acknowledged, without a hole, and with the removed topics that may still have files.

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin.
"""

import os

import pytest
from structlog.testing import capture_logs

from tests.sim.metadata import MetadataSimulation

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "400"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
SHARES = 4
LIVES, STEPS = 5, 80


def run(seed: int) -> MetadataSimulation:
    """One machine; a failure names its seed."""
    simulation = MetadataSimulation(seed)
    try:
        for life in range(LIVES):
            simulation.live(STEPS, power_cut=life % 4 != 3)
        simulation.live(0, power_cut=False)
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return simulation


@pytest.mark.parametrize("share", range(SHARES))
def test_what_was_decided_is_found_by_every_start(share: int) -> None:
    decided = refused = failures = snapshots = older = 0
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        with capture_logs():
            simulation = run(seed)
        decided += simulation.decided
        refused += simulation.refused
        failures += simulation.failures
        snapshots += simulation.snapshots
        older += simulation.older_snapshots
    if RUNS >= 400:
        assert decided > RUNS / SHARES * 4
        assert snapshots > RUNS / SHARES
        assert refused > 0, "no disk was ever full or broken"
        assert failures > 0, "no disk ever failed"
        assert older > 0, "no snapshot was ever damaged"
