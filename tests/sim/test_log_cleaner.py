"""Compaction among appends, retention, deletions, full disks and power cuts, hundreds of times

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin.
"""

import os

import pytest
from structlog.testing import capture_logs

from tests.sim.log_cleaner import CleaningSimulation

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "240"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
SHARES = 6
LIVES, STEPS = 4, 250


def run(seed: int) -> CleaningSimulation:
    """One machine; a failure names its seed."""
    simulation = CleaningSimulation(seed)
    try:
        for life in range(LIVES):
            simulation.live(STEPS, power_cut=life % 4 != 3)
        simulation.live(0, power_cut=False)
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return simulation


@pytest.mark.parametrize("share", range(SHARES))
def test_the_newest_record_of_every_key_survives_every_power_cut(share: int) -> None:
    replacements = acknowledged = cuts = 0
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        with capture_logs():
            simulation = run(seed)
        replacements += simulation.replacements
        acknowledged += simulation.batches_acknowledged
        cuts += simulation.cuts
    if RUNS >= 240:
        assert acknowledged > RUNS
        assert replacements > RUNS / SHARES, "the cleaner must have been at work"
        assert cuts > RUNS / SHARES, "ends must have been cut off"
