"""Readers of a log that may lose what they read, on a disk that loses what was not synced

Each seed is one machine with `flush.policy=os` through a few lives that end with a power cut, a kill or in order, also
during a start. An offset and a leader epoch name one record, whoever read it and when; and what a consumer keeps after
it has asked where its last epoch ended (KIP-320) is in the log.

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin.
"""

import os

import pytest
from structlog.testing import capture_logs

from tests.sim.leader_epochs import EpochSimulation
from tidemill.broker.quorum.controller import Controller

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "300"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
SHARES = 4
LIVES, STEPS = 5, 60


def run(seed: int) -> EpochSimulation:
    """One machine; a failure names its seed."""
    simulation = EpochSimulation(seed)
    try:
        for life in range(LIVES):
            simulation.live(STEPS, power_cut=life % 2 == 1)
        simulation.live(0, power_cut=False)
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return simulation


@pytest.mark.parametrize("share", range(SHARES))
def test_an_offset_and_a_leader_epoch_are_one_record_for_ever(share: int) -> None:
    reads = truncations = 0
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        with capture_logs():
            simulation = run(seed)
        reads += simulation.reads
        truncations += simulation.truncations
    if RUNS >= 300:
        assert reads > RUNS / SHARES * 5
        assert truncations > RUNS / SHARES, "no reader ever lost anything"


def test_a_start_that_keeps_the_leader_epoch_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that this world is for: it meets it in one of the first seeds."""
    monkeypatch.setattr(Controller, "begin_leaderships", lambda _self: 0)

    def search() -> None:
        for seed in range(1000):
            run(seed)

    with capture_logs(), pytest.raises(AssertionError, match=r"is another record now|are not there"):
        search()
