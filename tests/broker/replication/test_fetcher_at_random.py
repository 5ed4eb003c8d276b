"""Whole brokers that copy from one another while leaders change and brokers come and go, by chance

Whatever was acknowledged by all is in every log in the end, in its order, and the logs are the same.
`TIDEMILL_CLUSTER_RUNS` sets how many seeds are tried, `TIDEMILL_CLUSTER_SEED` where they begin.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.broker.broker_world import WireClient, wire_client
from tests.broker.handlers.data_path import produce_request, records
from tests.broker.replication.cluster_world import Cluster, cluster_of, until
from tidemill.broker.log.checkpoints import take_clean_shutdown
from tidemill.core.runtime.disk import OsDirectory
from tidemill.core.wire.api import ApiKey

RUNS = int(os.environ.get("TIDEMILL_CLUSTER_RUNS", "1"))
FIRST_SEED = int(os.environ.get("TIDEMILL_CLUSTER_SEED", "0"))
STEPS = 60


class Chaos:
    """Mutable: a cluster, what was sent to it, and what was acknowledged."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.sent = 0
        self.acknowledged: list[bytes] = []

    async def step(self) -> None:
        roll = self.rng.random()
        if roll < 0.55:
            await self.produce()
        elif roll < 0.62:
            self.elect()
        elif roll < 0.7:
            self.usurp()
        elif roll < 0.8:
            await self.stop()
        elif roll < 0.9:
            await self.start()
        else:
            await asyncio.sleep(self.rng.choice((0, 0.01, 0.1)))

    async def produce(self) -> None:
        """Some batches to the leader, by acks of one or all; an answer may never come."""
        leader = self.cluster.members.get(self.cluster.partition.leader)
        if leader is None or not leader.up:
            return
        async with wire_client(leader.broker) as client:
            for _ in range(self.rng.randint(1, 4)):
                self.sent += 1
                await self.send(client, b"%d" % self.sent, self.rng.choice((1, -1, -1)))

    async def send(self, client: WireClient, value: bytes, acks: int) -> None:
        request = produce_request(self.cluster.topic, {0: records(value)}, 9, acks)
        try:
            async with asyncio.timeout(2):
                response = await client.ask(ApiKey.PRODUCE, 9, request)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            return
        if acks == -1 and response.responses[0].partition_responses[0].error_code == 0:
            self.acknowledged.append(value)

    def elect(self) -> None:
        eligible = [each for each in self.cluster.partition.isr if self.cluster.members[each].up]
        if eligible:
            self.cluster.decide(leader=self.rng.choice(eligible), isr=tuple(eligible))

    def usurp(self) -> None:
        """Elect somebody else in the moment in which the leader appends: its log parts from all others."""
        leader = self.cluster.members[self.cluster.partition.leader]
        if leader.up and leader.replica.machine.leads:
            for _ in range(self.rng.randint(1, 3)):
                self.sent += 1
                value = records(b"%d" % self.sent)
                epoch = leader.replica.machine.leader_epoch
                leader.replica.log.append(value, now_ms=leader.broker.clock.now_ms(), leader_epoch=epoch)
        self.elect()

    async def stop(self) -> None:
        """In order, or so that a start takes it for a crash."""
        up = [each for each in self.cluster.members.values() if each.up]
        if len(up) < 2:
            return
        member = self.rng.choice(up)
        await member.stop()
        if self.rng.random() < 0.5:
            take_clean_shutdown(OsDirectory(str(self.cluster.folder / str(member.node_id))))
        if self.cluster.partition.leader == member.node_id:
            self.elect()

    async def start(self) -> None:
        """Whoever registers anew is out of sync, unless nobody else is in sync."""
        down = [each for each in self.cluster.members.values() if not each.up]
        if not down:
            return
        member = self.rng.choice(down)
        await member.start()
        isr = tuple(each for each in self.cluster.partition.isr if each != member.node_id)
        if not isr:
            self.cluster.decide(leader=member.node_id, isr=(member.node_id,))
        elif isr != self.cluster.partition.isr:
            self.cluster.decide(isr=isr)
            if not any(self.cluster.members[each].up for each in isr):
                return
            self.elect()
        self.cluster.tell(member)

    async def heal(self) -> None:
        while not all(each.up for each in self.cluster.members.values()):
            await self.start()
        leader = self.cluster.partition.leader
        if leader not in self.cluster.partition.isr or not self.cluster.members[leader].up:
            self.elect()
        for member in self.cluster.members.values():
            self.cluster.tell(member)
        await until(lambda: len(self.cluster.partition.isr) == len(self.cluster.members), "all in sync")
        await self.cluster.members[self.cluster.partition.leader].produce(b"the end")

    def judge(self) -> None:
        first, *others = self.cluster.members.values()
        for other in others:
            assert other.values == first.values
            assert other.replica.log.epochs.entries() == first.replica.log.epochs.entries()
        assert len(set(first.values)) == len(first.values)
        there = {value: number for number, value in enumerate(first.values)}
        places = [there[value] for value in self.acknowledged]
        assert places == sorted(places), "acknowledged in another order"


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + RUNS))
async def test_what_all_have_acknowledged_is_on_all(tmp_path: Path, seed: int) -> None:
    async with cluster_of(tmp_path) as cluster:
        chaos = Chaos(cluster, seed)
        for _ in range(STEPS):
            await chaos.step()
        await chaos.heal()
        members = list(cluster.members.values())
        end = members[0].replica.log
        await until(
            lambda: (
                len({each.replica.log.log_end_offset for each in members}) == 1
                and all(each.replica.high_watermark == end.log_end_offset for each in members)
            ),
            "everybody has everything",
        )
        chaos.judge()
