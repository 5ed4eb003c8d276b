"""Whole consumer groups against one coordinator, from a seed: lost answers, silent members, crashes, a full disk

Members follow the classic protocol as client libraries do. The coordinator's log may lose what was not flushed. After
every event: a partition has at most one owner per generation, an acknowledged offset is never lost, and the log says
what the machine knows. At the end everything heals and the members that are left share all partitions.
"""

import random
from typing import Any

import pytest

from tests.broker.groups.group_world import GroupWorld
from tidemill.broker.coordination.contract import Append, Appended, Reply
from tidemill.broker.groups.events import (
    CommitResult,
    ErrorResult,
    JoinResult,
    Leaver,
    LeaveResult,
    Protocol,
    Response,
    SyncResult,
)
from tidemill.broker.groups.records import encode_record
from tidemill.broker.groups.table import GroupLimits
from tidemill.core.error_code import ErrorCode

PARTITIONS = 5
SESSION_MS = 10_000
REBALANCE_MS = 20_000
STEPS = 400


class CrashingWorld(GroupWorld):
    """A coordinator whose answers wait for the disk and whose disk forgets what was not flushed."""

    def __init__(self, seed: random.Random) -> None:
        delay_ms = seed.choice([0, 3_000])
        super().__init__(GroupLimits(initial_rebalance_delay_ms=delay_ms, max_size=50))
        self.durable = 0
        self._ends: dict[int, int] = {}  # append token -> length of the log after it
        self._held: list[Reply] = []

    def _append(self, action: Append) -> list[Any]:
        if self.append_error is not None:
            return super()._append(action)
        self.log += [encode_record(record) for record in action.records]
        self._ends[action.token] = len(self.log)
        return self.machine.step(Appended(token=action.token), self.now)

    def flush(self) -> None:
        self.durable = len(self.log)

    def delivered(self, request_id: int) -> Response | None:
        """The answer, once it may leave."""
        after = self.after.get(request_id)
        if after is not None and self._ends.get(after, 0) > self.durable:
            return None
        return self.replies.get(request_id)

    def crash(self) -> None:
        """Forget what was not flushed, and every request that was waiting."""
        del self.log[self.durable :]
        self._ends.clear()
        self.replies.clear()
        self.after.clear()
        self.asked.clear()
        self.append_error = None
        self.restart()


class Consumer:
    """A member as a client library behaves."""

    def __init__(self, world: CrashingWorld, name: str, instance: str | None) -> None:
        self.world = world
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[int, ...] | None = None
        self.request: int | None = None
        self.kind = ""
        self.is_leader = False
        self.assignment: dict[str, bytes] = {}
        self.fenced = False
        self.committing: tuple[int, int] | None = None

    def act(self, history: "History") -> None:
        """Look at the answer to what was asked, else do the next thing."""
        if self.fenced:
            return
        if self.request is None:
            self._next(history)
            return
        response = self.world.delivered(self.request)
        if response is None:
            return
        self.request = None
        match response:
            case JoinResult():
                self._joined(response)
            case SyncResult():
                self._synced(response, history)
            case ErrorResult():
                self._told(response.error)
            case CommitResult():
                assert self.committing is not None
                if response.errors[0] is ErrorCode.NONE:
                    history.acknowledged(*self.committing)
                self._told(response.errors[0])

    def disconnect(self) -> None:
        """The connection broke: what was asked is asked again."""
        self.request = None
        if self.kind != "heartbeat":
            self.kind = ""

    def _next(self, history: "History") -> None:
        if self.generation < 0:
            self.kind = "join"
            self.request = self.world.join(
                self.member_id,
                name=self.name,
                instance=self.instance,
                protocols=(Protocol("range", b""),),
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
                required=True,
                skip=True,
            )
        elif self.owned is None:
            self.kind = "sync"
            assignment = self.assignment if self.is_leader else {}
            self.request = self.world.sync(self.member_id, self.generation, assignment, instance=self.instance)
        elif self.owned and history.seed.random() < 0.3:
            self._commit(history)
        else:
            self._told(self.world.heartbeat(self.member_id, self.generation, instance=self.instance))

    def _commit(self, history: "History") -> None:
        partition = history.seed.choice(self.owned or (0,))
        self.committing = (partition, history.next_offset())
        before = set(self.world.asked)
        self.world.commit(
            self.committing[1],
            partition=partition,
            member_id=self.member_id,
            generation=self.generation,
            instance=self.instance,
        )
        (self.request,) = self.world.asked - before

    def _joined(self, result: JoinResult) -> None:
        match result.error:
            case ErrorCode.NONE:
                self.member_id = result.member_id
                self.generation = result.generation_id
                self.owned = None
                self.is_leader = result.leader == result.member_id and not result.skip_assignment
                members = sorted(member.member_id for member in result.members)
                self.assignment = {
                    member: bytes(p for p in range(PARTITIONS) if p % len(members) == index)
                    for index, member in enumerate(members)
                }
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = result.member_id
            case error:
                self._told(error)

    def _synced(self, result: SyncResult, history: "History") -> None:
        if result.error is ErrorCode.NONE:
            self.owned = tuple(result.assignment)
            history.owns(self.generation, self.instance or self.member_id, self.owned)
        else:
            self._told(result.error)

    def _told(self, error: ErrorCode) -> None:
        match error:
            case ErrorCode.NONE | ErrorCode.COORDINATOR_NOT_AVAILABLE:
                pass
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self.generation, self.owned = -1, None
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                self.member_id, self.generation, self.owned = "", -1, None
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fenced = True
            case other:
                raise AssertionError(f"a member was told {other.name}")


class History:
    """What was seen from outside, and what must not happen."""

    def __init__(self, seed: random.Random) -> None:
        self.seed = seed
        self.owners: dict[tuple[int, int], str] = {}
        self.acked: dict[int, int] = {}
        self._offset = 0

    def next_offset(self) -> int:
        self._offset += 1
        return self._offset

    def owns(self, generation: int, member: str, partitions: tuple[int, ...]) -> None:
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member)
            assert owner == member, f"partition {partition} of generation {generation}: {owner} and {member}"

    def acknowledged(self, partition: int, offset: int) -> None:
        self.acked[partition] = max(offset, self.acked.get(partition, 0))

    def check(self, world: CrashingWorld) -> None:
        offsets = world.machine.committed_offsets("g")
        for partition, offset in self.acked.items():
            assert offsets["t", partition].offset >= offset, "an acknowledged offset is gone"


def replayed(world: CrashingWorld) -> object:
    copy = GroupWorld(world.limits)
    copy.log = list(world.log)
    copy.restart()
    return copy.machine.durable_state()


def run(number: int) -> None:
    seed = random.Random(number)
    world = CrashingWorld(seed)
    history = History(seed)
    names = iter(range(1000))
    consumers = [Consumer(world, f"c{next(names)}", None) for _ in range(3)]
    for _ in range(STEPS):
        disturb(seed, world, consumers, names)
        for consumer in seed.sample(consumers, len(consumers)):
            if seed.random() < 0.8:
                consumer.act(history)
        if seed.random() < 0.3:
            world.flush()
        history.check(world)
        if seed.random() < 0.05:
            assert replayed(world) == world.machine.durable_state()
    heal(world, consumers, history)


def disturb(seed: random.Random, world: CrashingWorld, consumers: list[Consumer], names: Any) -> None:
    world.advance(seed.choice([10, 100, 1_000, 2_000]))
    chance = seed.random()
    if chance < 0.02:
        pass_time = seed.choice([world.advance, world.stall])
        pass_time(seed.choice([3_000, SESSION_MS, REBALANCE_MS]))
    elif chance < 0.05 and len(consumers) < 6:
        instance = seed.choice([None, None, f"i{seed.randint(0, 2)}"])
        if instance is not None:  # a process that restarts; the old one may still run
            for consumer in [other for other in consumers if other.instance == instance and seed.random() < 0.7]:
                consumers.remove(consumer)
        consumers.append(Consumer(world, f"c{next(names)}", instance))
    elif chance < 0.06 and consumers:
        consumers.remove(seed.choice(consumers))  # dies without a word
    elif chance < 0.07 and consumers:
        leaver = consumers.pop(seed.randrange(len(consumers)))
        result = world.leave(Leaver(leaver.member_id, leaver.instance))
        assert isinstance(result, LeaveResult)
    elif chance < 0.11:
        world.crash()
        for consumer in consumers:
            consumer.disconnect()
    elif chance < 0.13 and consumers:
        seed.choice(consumers).disconnect()
    elif chance < 0.14:
        world.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif chance < 0.20:
        world.append_error = None


def heal(world: CrashingWorld, consumers: list[Consumer], history: History) -> None:
    """No more faults: whoever is left ends in one stable generation that covers every partition once."""
    world.append_error = None
    if not any(not consumer.fenced for consumer in consumers):
        consumers.append(Consumer(world, "last", None))
    for _ in range(400):
        world.flush()
        for consumer in consumers:
            consumer.act(history)
            consumer.act(history)
        world.flush()
        world.advance(500)
    alive = [consumer for consumer in consumers if not consumer.fenced]
    view = world.machine.describe("g")
    assert view is not None
    assert view.state == "Stable", world.notes[-5:]
    assert {member.member_id for member in view.members} == {consumer.member_id for consumer in alive}
    assert len({consumer.generation for consumer in alive}) == 1
    assert sorted(p for consumer in alive for p in consumer.owned or ()) == list(range(PARTITIONS))
    history.check(world)
    assert replayed(world) == world.machine.durable_state()


@pytest.mark.parametrize("number", range(60))
def test_groups_survive(number: int) -> None:
    run(number)
