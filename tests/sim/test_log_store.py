"""The real log on a disk that loses what was not synced, thousands of times

Each seed is one machine through a few lives. A life is appends by idempotent producers to several partitions, rounds
of fsync in every stage, batches and markers as a leader sends them to a follower, ends that are cut off, rolls,
checkpoints, retention, deletions, a full disk, a failing fsync; it ends with the power cut in the middle of any change
to the disk, also during the recovery from the cut before. After each start everything acknowledged or once visible is
there, in order, at its offset, nothing else is, and retries are recognised. What was cut off is not there, and what
came behind the cut is. Some machines run with `flush.policy=os`, which promises less: what is there is what was
written, up to some point.

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin.
"""

import os

import pytest
from structlog.testing import capture_logs

from tests.sim.log_store import LogSimulation

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "800"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
SHARES = 12
LIVES, STEPS = 4, 60


def run(seed: int) -> LogSimulation:
    """One machine; a failure names its seed."""
    simulation = LogSimulation(seed)
    try:
        for life in range(LIVES):
            simulation.live(STEPS, power_cut=life % 4 != 3)
        simulation.live(0, power_cut=False)
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return simulation


@pytest.mark.parametrize("share", range(SHARES))
def test_what_was_acknowledged_or_seen_survives_every_power_cut(share: int) -> None:
    crashes = acknowledged = refused = replicated = cuts = unclean = reopened = 0
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        with capture_logs():
            simulation = run(seed)
        crashes += simulation.crashes
        acknowledged += simulation.batches_acknowledged
        refused += simulation.refused
        replicated += simulation.replicated
        cuts += simulation.cuts
        unclean += simulation.unclean
        reopened += simulation.reopened
    if RUNS >= 800:
        assert crashes > RUNS / SHARES * 4
        assert acknowledged > crashes
        assert refused > 0, "no disk was ever full or broken"
        assert replicated > crashes
        assert 0 < unclean < cuts
        assert reopened > 0, "no start believed the stop before it"
