"""The log of a member of a quorum on a disk that loses what was not synced, thousands of times

Each seed is one member through a few lives of appends, fetched groups of batches, cuts, snapshots of its own and from
elsewhere, a full disk, a failing fsync; a life ends with the power cut at any change to the disk, also inside a start,
a cut or an installation, or with a kill. What was synced is there, what was cut off never comes back, epochs and
voters are those of the batches, and a snapshot is there as a whole or not at all.

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.disk import SimulatedFile
from tests.sim.metadata_log import MetadataLogSimulation
from tidemill.broker.log.epochs import LeaderEpochs
from tidemill.broker.quorum import incoming, loading, log_batches
from tidemill.broker.quorum.batches import sound_batches
from tidemill.broker.quorum.incoming import IncomingSnapshot
from tidemill.broker.quorum.segment import MetadataSegment
from tidemill.broker.quorum.snapshot import standing_of

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "400"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
SHARES = 4
LIVES, STEPS = 8, 60
PLANT_RUNS = 300
"""Seeds within which every plant has to be found."""


def run(seed: int) -> MetadataLogSimulation:
    """One member; a failure names its seed."""
    simulation = MetadataLogSimulation(seed)
    try:
        for _ in range(LIVES):
            simulation.live(STEPS)
        simulation.live(0)
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return simulation


@pytest.mark.parametrize("share", range(SHARES))
def test_what_the_log_owes_is_found_by_every_start(share: int) -> None:
    counts = dict.fromkeys(("appended", "cuts", "installed", "written", "refused", "failures"), 0)
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        simulation = run(seed)
        for name in counts:
            counts[name] += getattr(simulation, name)
    if RUNS >= 400:
        assert min(counts.values()) > RUNS / SHARES / 4, counts
        assert counts["appended"] > RUNS / SHARES * 40, counts


# --- planted faults


def cut_without_sync(patch: pytest.MonkeyPatch) -> None:
    """A cut is told as done before it is durable."""
    cut, sync = MetadataSegment.cut, SimulatedFile.sync
    unsynced: set[int] = set()

    def cut_noted(segment: MetadataSegment, position: int) -> None:
        unsynced.add(id(segment.file))
        cut(segment, position)

    def sync_but_once(file: SimulatedFile) -> None:
        if id(file) in unsynced:
            unsynced.discard(id(file))
        else:
            sync(file)

    patch.setattr(MetadataSegment, "cut", cut_noted)
    patch.setattr(SimulatedFile, "sync", sync_but_once)


def in_place_before_it_is_whole(patch: pytest.MonkeyPatch) -> None:
    """A snapshot grows under the name by which a start takes it."""
    patch.setattr(incoming, "PART_SUFFIX", "")


def in_place_before_it_is_on_the_disk(patch: pytest.MonkeyPatch) -> None:
    """A snapshot that came is not synced."""

    def verify(self: IncomingSnapshot) -> Any:
        sync, SimulatedFile.sync = SimulatedFile.sync, lambda _file: None  # type: ignore[method-assign]
        try:
            return real(self)
        finally:
            SimulatedFile.sync = sync  # type: ignore[method-assign]

    real = IncomingSnapshot.verify
    patch.setattr(IncomingSnapshot, "verify", verify)


def half_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    """A snapshot that came is not looked at."""
    patch.setattr(incoming, "check", lambda _data: None)


def epochs_not_cut(patch: pytest.MonkeyPatch) -> None:
    """The epochs of batches that were cut off stay known."""
    patch.setattr(LeaderEpochs, "truncate_from_end", lambda _epochs, _offset: False)


def anything_is_stored(patch: pytest.MonkeyPatch) -> None:
    """What a leader sends is believed."""
    patch.setattr(log_batches, "check_fetched", lambda data, **_: [view for view, _ in sound_batches(data)])


def no_voters_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A start behind a snapshot does not know who votes."""
    patch.setattr(loading, "standing_of", lambda data: standing_of(data)[:0])


def no_holes(patch: pytest.MonkeyPatch) -> None:
    """A crash while several batches were on their way passes for damage."""
    patch.setattr(loading, "has_hole", lambda *_: False)


@pytest.mark.parametrize(
    "plant",
    [
        cut_without_sync,
        in_place_before_it_is_whole,
        in_place_before_it_is_on_the_disk,
        half_a_snapshot,
        epochs_not_cut,
        anything_is_stored,
        no_voters_in_snapshots,
        no_holes,
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(PLANT_RUNS):
        try:
            run(seed)
        except Exception:
            return
    pytest.fail(f"{plant.__name__} went unnoticed in {PLANT_RUNS} seeds")
