"""A mirrored partition among crashes, compaction, retention, refusals and forgetful brokers, hundreds of times

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin: ten thousand of them with
`TIDEMILL_SIM_RUNS=10000 pytest tests/sim/test_mirror_link.py`.
"""

import os
from collections.abc import Iterable

import pytest

from tests.sim.mirror_link import MirrorWorld, run_world
from tidemill.mirror import link, map_ledger
from tidemill.mirror.lineage import Claim, Lineage, Span
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


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(1800)
def test_a_source_that_was_cut_is_recognised(share: int) -> None:
    met: set[str] = set()
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        met |= run_world(seed, cuts=1 + seed % 2).met
    if RUNS >= 300:
        assert "cut" in met, "the world was too kind"


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(1800)
def test_a_target_that_is_put_back_is_filled_again(share: int) -> None:
    met: set[str] = set()
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        met |= run_world(seed, set_backs=1 + seed % 3).met
    if RUNS >= 300:
        assert {"put back", "noticed"} <= met, "the world was too kind"


@pytest.mark.parametrize(
    ("seed", "cuts", "set_backs"),
    [
        pytest.param(1453, 0, 2, id="a doubt that begins while another is waited out"),
        pytest.param(6121, 2, 0, id="a probe whose records are cut off before its runs are stored"),
        pytest.param(8372, 0, 3, id="a partition put forward to what the map was overwritten for"),
    ],
)
def test_a_seed_that_once_went_wrong(seed: int, cuts: int, set_backs: int) -> None:
    run_world(seed, cuts=cuts, set_backs=set_backs)


def test_the_same_seed_tells_the_same_story() -> None:
    assert run_world(7).target.batches == run_world(7).target.batches


def search(cuts: int = 0, set_backs: int = 0) -> None:
    """Until one seed goes wrong."""
    for seed in range(SEARCH):
        run_world(seed, cuts=cuts, set_backs=set_backs)


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


class Blind(Lineage):
    """Asks nothing of the source."""

    def claims(self, position: int) -> tuple[Claim, ...]:
        return ()


class Unstored(Lineage):
    """Knows of leaders in this life only."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        super().__init__()


class Rash(Lineage):
    """Takes an epoch that ended for one that reaches to the position."""

    def claims(self, position: int) -> tuple[Claim, ...]:
        return tuple(Claim(claim.epoch, position) for claim in super().claims(position))


@pytest.mark.parametrize(
    ("planted", "cuts", "words"),
    [
        pytest.param(Blind, 1, "forgets|nobody noticed", id="the source is not asked where its epochs ended"),
        pytest.param(Unstored, 1, "forgets|nobody noticed", id="the source's leaders are forgotten with a restart"),
        pytest.param(Rash, 0, "was cut at offset", id="a false alarm"),
    ],
)
def test_a_fault_in_recognising_cuts_is_found(
    monkeypatch: pytest.MonkeyPatch, planted: type[Lineage], cuts: int, words: str
) -> None:
    monkeypatch.setattr(map_ledger, "Lineage", planted)
    with pytest.raises(AssertionError, match=words):
        search(cuts)


class Trustful(MapLedger):
    """Takes what was stored for stored for ever."""

    def affirm(self) -> StoreRuns | None:
        return self.rewrite()


def test_a_map_that_is_believed_stored_on_a_target_that_was_put_back_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "MapLedger", Trustful)
    with pytest.raises((AssertionError, ValueError)):
        search(set_backs=3)


def test_a_mirror_that_is_not_told_to_look_at_the_target_again_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has nothing to send and so no reason to look."""

    def silent(world: MirrorWorld) -> None:
        world.bound = world.connection

    monkeypatch.setattr(MirrorWorld, "unbind", silent)
    with pytest.raises(AssertionError, match=r"is not on the target|does not settle"):
        search(set_backs=3)


def test_a_store_that_does_not_notice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    original = MirrorWorld.put_back

    def unnoticed(world: MirrorWorld) -> None:
        original(world)
        world.is_set_back = False

    monkeypatch.setattr(MirrorWorld, "put_back", unnoticed)
    with pytest.raises((AssertionError, ValueError)):
        search(set_backs=3)


def test_a_target_that_recognises_no_repeats_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequence numbers are what keeps a batch from landing twice."""
    original = MirrorWorld.read_wire

    def forgetful(world: MirrorWorld) -> None:
        world.target.remembered = None
        original(world)

    monkeypatch.setattr(MirrorWorld, "read_wire", forgetful)
    with pytest.raises((AssertionError, ValueError)):
        search()
