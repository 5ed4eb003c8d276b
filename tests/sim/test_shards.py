"""Groups whose partitions move between brokers, from many seeds

Each seed is three brokers that elect, depose, miss news, fail appends and loads (`tests.sim.shards`). What is planted
here the world has to find.

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin.
"""

import asyncio
import os
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.broker.coordination.shared_log import NodeLog
from tests.sim.shards import ShardSimulation
from tidemill.broker.coordination import runtime, shard
from tidemill.broker.coordination.leaderships import Leadership, Turnover, turnover
from tidemill.broker.log import turns
from tidemill.core.records.batch import BatchView

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "40"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
STEPS = 400
SEEDS_TO_CATCH = 200


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads give way after every batch."""
    monkeypatch.setattr(turns, "TURN_S", 0)


def run(seed: int) -> ShardSimulation:
    """One cluster; a failure names its seed."""
    simulation = ShardSimulation(seed)
    try:
        with capture_logs(), asyncio.Runner() as runner:
            runner.get_loop().set_exception_handler(lambda _loop, _context: None)
            runner.run(simulation.live(STEPS))
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return simulation


def test_groups_move_with_their_partitions() -> None:
    commits = reads = moves = refused = joins = flips = 0
    for seed in range(FIRST_SEED, FIRST_SEED + RUNS):
        simulation = run(seed)
        commits += simulation.commits
        reads += simulation.reads
        moves += simulation.moves
        refused += simulation.refused
        joins += simulation.joins
        flips += simulation.flips
    if RUNS >= 40:
        assert min(commits, reads, moves, refused) > 10 * RUNS // 2, (commits, reads, moves, refused)
        assert joins > RUNS
        assert flips > RUNS // 4


def run_until_caught() -> None:
    for seed in range(SEEDS_TO_CATCH):
        run(seed)


def caught(match: str) -> None:
    """Some seed finds it."""
    with pytest.raises(AssertionError, match=match):
        run_until_caught()


def test_a_shard_that_is_not_given_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def clings(held: dict[int, Leadership], *rest: object) -> Turnover:
        return turnover(held, *rest)._replace(given_up=())  # type: ignore[arg-type]

    monkeypatch.setattr(runtime, "turnover", clings)
    caught("of partition|answer for|was acknowledged|is led by")


def test_a_load_that_ends_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shard.Shard.load

    def load(self: shard.Shard) -> Iterator[int]:  # type: ignore[type-arg]
        for number, records in enumerate(real(self)):
            if number == 7:
                return
            yield records

    monkeypatch.setattr(shard.Shard, "load", load)
    caught("of partition")


def test_an_append_that_failed_and_left_a_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard.Shard, "fail", lambda _self, _reason: None)
    caught("of partition")


def test_an_answer_before_the_record_is_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeLog, "pending", lambda _self, _last_offset: None)
    caught("was acknowledged")


def test_a_load_that_does_not_look_at_checksums_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchView, "verify_crc", lambda _self: True)
    caught("of partition|was acknowledged|is led by")
