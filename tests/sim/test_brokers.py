"""Brokers that come and go, and faults of the decisions that this finds

Each seed is five brokers through some hundred steps: starts, power cuts, stops in order, sessions that end, proposals
from the past, topics that are made, moved and set otherwise, with acknowledged records as numbers. After each decision
whoever may lead holds all that was acknowledged.

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin.
"""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.brokers import BrokersSimulation, Violation
from tidemill.broker.quorum import brokers, in_sync, leadership, metadata
from tidemill.broker.quorum.image import ImageError
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "60"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
SHARES = 2
STEPS = 800


def run(seed: int) -> BrokersSimulation:
    """One cluster; a failure names its seed."""
    world = BrokersSimulation(seed)
    try:
        world.run(STEPS)
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return world


@pytest.mark.parametrize("share", range(SHARES))
def test_whoever_may_lead_holds_all_that_was_acknowledged(share: int) -> None:
    seen = Counter[str]()
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        seen.update(run(seed).counts)
    if RUNS >= 60:
        names = (
            "acknowledged", "cut", "stopped", "unclean", "unfinished", "AlterConfigs", "AlterPartition",
            "AlterReassignments", "CreatePartitions", "DeleteTopics", "ElectPreferred", "FenceBrokers",
            "UnregisterBroker",
        )  # fmt: skip
        assert min(seen[name] for name in names) > RUNS / SHARES / 10, seen


# --- faults planted


def forgiving(*codes: ErrorCode) -> Callable[..., None]:
    """A check of proposals that lets something pass."""
    check = in_sync.check

    def passes(*args: Any) -> None:
        try:
            check(*args)
        except KafkaError as error:
            if error.code not in codes:
                raise

    return passes


def takes_any_replica(*args: Any, **named: Any) -> leadership.Choice:
    """An election to which all replicas are eligible."""
    return elect(*args, **{**named, "eligible": args[1]})


def trusts_everybody(*args: Any, **named: Any) -> Any:
    """A changed partition of which nobody has lost anything."""
    return changed(*args, **{**named, "lost": ()})


def keeps_the_eligible(*_args: Any) -> tuple[()]:
    """Another min.insync.replicas, and nobody looks at who was eligible by the one before."""
    return ()


elect, changed = leadership.elect, leadership.changed
STALE = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("module", "name", "fault"),
    [
        (leadership, "elect", takes_any_replica),
        (in_sync, "check", forgiving(*STALE)),
        (in_sync, "check", forgiving(ErrorCode.INELIGIBLE_REPLICA)),
        (brokers, "changed", trusts_everybody),
        (metadata, "eligible_no_more", keeps_the_eligible),
    ],
    ids=["eligible ignored", "stale leader", "fenced member", "unclean restart", "other minimum"],
)
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, fault: Any) -> None:
    monkeypatch.setattr(module, name, fault)
    for seed in range(1000):
        try:
            BrokersSimulation(seed).run(STEPS)
        except (Violation, ImageError):
            return
    pytest.fail("1000 seeds, and nothing was found")
