"""A mirrored partition among crashes, compaction, retention, refusals and forgetful brokers, hundreds of times

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin: ten thousand of them with
`TIDEMILL_SIM_RUNS=10000 pytest tests/sim/test_mirror_link.py`.
"""

import os

import pytest

from tests.sim.mirror_link import MirrorWorld, run_world
from tidemill.mirror import link
from tidemill.mirror.link_events import StoreRuns
from tidemill.mirror.map_ledger import MapLedger
from tidemill.mirror.outbox import Outbox, Parcel
from tidemill.mirror.resuming import Resumption

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "300"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
SHARES = 6
SEARCH = 1000


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(1800)
def test_no_loss_no_duplicate_exact_offsets(share: int) -> None:
    met: set[str] = set()
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        met |= run_world(seed).met
    if RUNS >= 300:
        expected = {"garbage", "invisible", "late", "refused with others behind it"}
        assert expected <= met, "the world was too kind"


def test_the_same_seed_tells_the_same_story() -> None:
    assert run_world(7).target.batches == run_world(7).target.batches


def search() -> None:
    """Until one seed goes wrong."""
    for seed in range(SEARCH):
        run_world(seed)


class Careless(MapLedger):
    """Deletes segments whatever is on its way, and takes that write for one that stored everything."""

    careless = False

    @property
    def is_settled(self) -> bool:
        return self.careless or super().is_settled

    def collect(self, target_start: int) -> StoreRuns | None:
        self.careless = True
        try:
            return super().collect(target_start)
        finally:
            self.careless = False


class Forgetful(Outbox):
    """Fetches anew what may have been appended."""

    def take_back(self, parcel: Parcel, *, in_doubt: bool) -> None:
        pass


class Trusting(Resumption):
    """Overwrites the stored map with what the source says after a restart."""

    def contradicts(self, expected: int | None, source: int) -> bool:
        return False


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        pytest.param("MapLedger", Careless, id="garbage collected while the map is being stored"),
        pytest.param("IDLE_MS", 1 << 60, id="five in flight to a broker that forgot the producer"),
        pytest.param("Outbox", Forgetful, id="compacted between an append and its repetition"),
        pytest.param("Resumption", Trusting, id="compacted between a crash and the restart"),
    ],
)
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, name: str, planted: object) -> None:
    monkeypatch.setattr(link, name, planted)
    with pytest.raises((AssertionError, ValueError)):
        search()


def test_a_target_that_recognises_no_repeats_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequence numbers are what keeps a batch from landing twice."""
    original = MirrorWorld.read_wire

    def forgetful(world: MirrorWorld) -> None:
        world.target.remembered = None
        original(world)

    monkeypatch.setattr(MirrorWorld, "read_wire", forgetful)
    with pytest.raises((AssertionError, ValueError)):
        search()
