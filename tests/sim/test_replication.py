"""Replication of one partition under faults, and faults of the machine itself that this finds

Each seed is three brokers through a few hundred steps: appends, rounds of fsync, fetches, elections, crashes, on a
network that loses, repeats and reorders. After every step whatever was acknowledged is on the disk of every member of
the ISR, what consumers see too, no two leaders acknowledge in one epoch, and no HW goes back. Then the faults end and
everything has to come together.

`TIDEMILL_SIM_RUNS` sets how many seeds are tried, `TIDEMILL_SIM_SEED` where they begin.
"""

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from tests.sim.replication import NODES, Node, ReplicationSimulation, Violation, final_state
from tidemill.broker.quorum.image import PartitionImage
from tidemill.broker.replication.actions import Action, ProposeIsr, Truncate
from tidemill.broker.replication.fetching import Action as FetchAction
from tidemill.broker.replication.partition import Asking, PartitionMachine, Role

RUNS = int(os.environ.get("TIDEMILL_SIM_RUNS", "240"))
FIRST_SEED = int(os.environ.get("TIDEMILL_SIM_SEED", "0"))
SHARES = 4
STEPS = 400


def run(
    seed: int,
    simulation: type[ReplicationSimulation] = ReplicationSimulation,
    machine: type[PartitionMachine] = PartitionMachine,
) -> ReplicationSimulation:
    """One cluster; a failure names its seed."""
    world = simulation(seed, min_in_sync=1 + seed % 3, machine=machine)
    try:
        world.run(STEPS)
        world.heal()
        logs, isr, ends = final_state(world)
        assert len(set(logs)) == 1, "healed, and the logs differ"
        assert (isr, ends) == (NODES, {len(logs[0])}), "healed, and not everybody holds everything"
    except BaseException as error:
        error.add_note(f"seed {seed}: TIDEMILL_SIM_SEED={seed} TIDEMILL_SIM_RUNS=1 reproduces it")
        raise
    return world


@pytest.mark.parametrize("share", range(SHARES))
def test_what_is_acknowledged_is_held_by_every_member_of_the_isr(share: int) -> None:
    seen = Counter[str]()
    for seed in range(FIRST_SEED + share, FIRST_SEED + RUNS, SHARES):
        world = run(seed)
        seen.update(
            acks=world.acks,
            elections=world.elections,
            truncations=world.truncations,
            isr_changes=world.isr_changes,
            refusals=world.refusals,
            failures=world.failures,
            quiet=world.quiet,
        )
    if RUNS >= 240:
        often = ("acks", "elections", "truncations", "isr_changes", "failures", "quiet")
        assert min(seen[name] for name in often) > RUNS / SHARES / 3, seen


@pytest.mark.parametrize("nodes", [(1,), (1, 2)])
def test_fewer_replicas_go_by_the_same_rules(nodes: tuple[int, ...]) -> None:
    acks = 0
    for seed in range(40):
        world = ReplicationSimulation(seed, nodes=nodes)
        world.run(STEPS)
        world.heal()
        logs, isr, ends = final_state(world)
        assert (len(set(logs)), isr, ends) == (1, nodes, {len(logs[0])})
        acks += world.acks
    assert acks > 100


# --- faults planted


class AcknowledgesFromMemory(ReplicationSimulation):
    """What has been appended counts as held."""

    def produce(self, node: Node) -> None:
        super().produce(node)
        node.machine.stored(len(node.entries))


class WaitsForTheRoundOnly(ReplicationSimulation):
    """As long as the ISR is one, whoever is about to join."""

    def produce(self, node: Node) -> None:
        super().produce(node)
        if node.waiting and node.machine.isr == (node.node_id,):
            node.waiting[-1] = (*node.waiting[-1][:2], True)


class CommittedIsrOnly(PartitionMachine):
    """HW goes ahead of those that have been asked in and may be members already."""

    def stored(self, held: int) -> bool:
        somebody_may_join = super().stored(held)
        self.go_ahead()
        return somebody_may_join

    def fetched(self, *args: Any, **named: Any) -> list[Action]:
        actions = super().fetched(*args, **named)
        self.go_ahead()
        return actions

    def go_ahead(self) -> None:
        if self.leads:
            others = [self.progress(each) for each in self.isr if each != self.node_id]
            least = min([self.held, *(each.held for each in others if each is not None)])
            self.high_watermark = max(self.high_watermark, least)


class AsksInTooEarly(PartitionMachine):
    """A follower is asked in with its first fetch, wherever it is."""

    def fetched(self, replica: int, *args: Any, **named: Any) -> list[Action]:
        actions = super().fetched(replica, *args, **named)
        if actions or replica in self.isr:
            return actions
        isr = (*self.isr, replica)
        return [
            ProposeIsr(
                isr=isr,
                broker_epochs=(-1,) * len(isr),
                leader_epoch=self.leader_epoch,
                partition_epoch=self.partition_epoch,
            )
        ]


class TruncatesToHighWatermark(PartitionMachine):
    """As Kafka did before KIP-101: records that the leader has committed go, if HW is not known here yet."""

    def assigned(self, image: PartitionImage, *, log_end: int, now_ms: int) -> list[Action]:
        epoch = self.leader_epoch
        actions = super().assigned(image, log_end=log_end, now_ms=now_ms)
        if self.role is Role.FOLLOWER and epoch != self.leader_epoch and self.high_watermark < log_end:
            actions.append(Truncate(offset=self.high_watermark, lost=0))
        return actions


class TakesOldDecisions(PartitionMachine):
    """Who has heard of a newer epoch goes back to an older one."""

    def assigned(self, image: PartitionImage, *, log_end: int, now_ms: int) -> list[Action]:
        if image.partition_epoch < self.partition_epoch:
            self.partition_epoch = self.leader_epoch = -1
        return super().assigned(image, log_end=log_end, now_ms=now_ms)


class FetchesBeyondWhatItHolds(ReplicationSimulation):
    """A follower asks for what comes next as soon as it has written what came before."""

    def note_held(self, node: Node) -> None:
        if node.leader >= 0:
            self.say_held(node)

    def do(self, node: Node, leader: int, action: FetchAction) -> None:
        super().do(node, leader, action)
        self.note_held(node)


class TakesTheLeadersWordForItsOwnLog(PartitionMachine):
    """A follower takes a high watermark for true before it knows that its log is that leader's."""

    def answered(self, leader_epoch: int, *, high_watermark: int, **named: Any) -> list[Action]:
        actions = super().answered(self.leader_epoch, high_watermark=high_watermark, **named)
        if self.role is Role.FOLLOWER:
            self.high_watermark = max(self.high_watermark, min(high_watermark, named["log_end"]))
        return actions


class GoesByWhatItHasAskedFor(PartitionMachine):
    """A smaller ISR counts from the moment it is asked for: who was left out may be elected all the same."""

    def tick(self, now_ms: int, log_end: int, asking: Mapping[int, Asking] | None = None) -> list[Action]:
        actions = super().tick(now_ms, log_end, asking)
        for action in actions:
            if isinstance(action, ProposeIsr):
                held = [self.progress(each) for each in action.isr if each != self.node_id]
                least = min([self.held, *(each.held for each in held if each is not None)])
                self.high_watermark = max(self.high_watermark, least)
        return actions


@pytest.mark.parametrize(
    ("simulation", "machine"),
    [
        (FetchesBeyondWhatItHolds, PartitionMachine),
        (ReplicationSimulation, TakesTheLeadersWordForItsOwnLog),
        (ReplicationSimulation, GoesByWhatItHasAskedFor),
        (AcknowledgesFromMemory, PartitionMachine),
        (WaitsForTheRoundOnly, PartitionMachine),
        (ReplicationSimulation, CommittedIsrOnly),
        (ReplicationSimulation, AsksInTooEarly),
        (ReplicationSimulation, TruncatesToHighWatermark),
        (ReplicationSimulation, TakesOldDecisions),
    ],
)
def test_a_planted_fault_is_found(simulation: type[ReplicationSimulation], machine: type[PartitionMachine]) -> None:
    for seed in range(1000):
        try:
            simulation(seed, min_in_sync=1 + seed % 3, machine=machine).run(STEPS)
        except Violation:
            return
    pytest.fail("1000 seeds, and nothing was found")
