"""Connect workers that share a group, in one thread and from one seed

Workers with the real machines (member, group, placement), a coordinator by Kafka's rules, and between them a network
that delays, splits and loses. Workers are killed, frozen for longer than a session, restarted under their address, cut
off; they read the config topic at their own pace; their processes take their time to end, though never longer than the
grace that the placement counts on. A worker that starts may know of lives before it that are over. After every event
it is asked whether a task has two processes, and with every start whether its generation is above the one before.

A status is written some time after a process has started, and later still by who is cut off meanwhile; who is cut off
does not read any either. Who leads without ever having been in a round has nothing but those, and who was in the group
when it came, to go by.

A frozen worker is one whose whole machine stands still, its processes included. When it goes on after its lease was
over it ends them before they can do anything; that they might in the moment between is not seen here.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill.connect.group import machine as g
from tidemill.connect.herder.placement import CONNECTOR, AloneIn, Instance, PlacementSettings
from tidemill.core.client import membership as m
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidemill.core.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from tidemill.core.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidemill.core.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MEMBERS = m.MemberSettings(group="g", protocol_type="connect", protocol="tidemill", rebalance_timeout_ms=20_000)
PLACING = PlacementSettings(lease_ms=MEMBERS.session_timeout_ms, rebalance_timeout_ms=MEMBERS.rebalance_timeout_ms)
END_MS = 4_000
"""The longest that a process takes to end; below the grace of the placement."""

Reply = Callable[[Message], None]
Make = Callable[[Sequence[AloneIn]], Any]
"""Makes what decides for a group, `Placement` or the assignor of the other protocol."""


class Broken(AssertionError):
    """An invariant did not hold."""


@dataclass
class Seat:
    """A member as the coordinator keeps it."""

    metadata: bytes = b""
    deadline_ms: int = 0
    join: Reply | None = None
    sync: Reply | None = None


class Coordinator:
    """Kafka's classic group, what a Connect cluster uses of it."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.seats: dict[str, Seat] = {}
        self.generation = 0
        self.state = "empty"
        self.leader = ""
        self.assignments: dict[str, bytes] = {}
        self.round_end_ms = 0
        self._ids = itertools.count(1)

    def handle(self, request: Message, reply: Reply) -> None:
        """One request."""
        match request:
            case JoinGroupRequest():
                self._join(request, reply)
            case SyncGroupRequest():
                self._sync(request, reply)
            case HeartbeatRequest():
                reply(HeartbeatResponse(error_code=self._beat(request)))
            case LeaveGroupRequest():
                if request.member_id in self.seats:
                    self.remove(request.member_id)
                reply(LeaveGroupResponse())

    def _touch(self, seat: Seat) -> None:
        seat.deadline_ms = self.world.now_ms + MEMBERS.session_timeout_ms

    def _join(self, request: JoinGroupRequest, reply: Reply) -> None:
        if not request.member_id:
            member_id = f"m{next(self._ids)}"
            reply(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
            return
        metadata = request.protocols[0].metadata
        seat = self.seats.setdefault(request.member_id, Seat()) if self._known(request) else None
        if seat is None:
            reply(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self._touch(seat)
        same = seat.metadata == metadata and self.state == "stable" and request.member_id != self.leader
        seat.metadata = metadata
        if same:
            reply(self._joined(request.member_id))
            return
        seat.join = reply
        if self.state != "joining":
            self._begin()
        self._end_join(late=False)

    def _known(self, request: JoinGroupRequest) -> bool:
        number = int(request.member_id.removeprefix("m"))
        new = number not in self.world.seated
        self.world.seated.add(number)
        return new or request.member_id in self.seats

    def _begin(self) -> None:
        for seat in self.seats.values():
            if seat.sync is not None:
                seat.sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
                seat.sync = None
        self.state = "joining"
        self.round_end_ms = self.world.now_ms + MEMBERS.rebalance_timeout_ms

    def _end_join(self, *, late: bool) -> None:
        if late:
            self.seats = {member_id: seat for member_id, seat in self.seats.items() if seat.join is not None}
        if not self.seats:
            self.generation += 1  # of a group of nobody, as in Kafka
            self.state = "empty"
            return
        if any(seat.join is None for seat in self.seats.values()):
            return
        self.generation += 1
        self.state, self.assignments = "syncing", {}
        self.round_end_ms = self.world.now_ms + MEMBERS.rebalance_timeout_ms
        if self.leader not in self.seats:
            self.leader = min(self.seats)
        for member_id, seat in self.seats.items():
            assert seat.join is not None
            self._touch(seat)
            seat.join(self._joined(member_id))
            seat.join = None

    def _joined(self, member_id: str) -> JoinGroupResponse:
        rows = [JoinGroupResponseMember(member_id=name, metadata=seat.metadata) for name, seat in self.seats.items()]
        return JoinGroupResponse(
            generation_id=self.generation,
            member_id=member_id,
            leader=self.leader,
            members=tuple(rows) if member_id == self.leader and self.state == "syncing" else (),
        )

    def _sync(self, request: SyncGroupRequest, reply: Reply) -> None:
        code = self._standing(request.member_id, request.generation_id)
        if code or self.state == "joining":
            reply(SyncGroupResponse(error_code=code or ErrorCode.REBALANCE_IN_PROGRESS))
            return
        seat = self.seats[request.member_id]
        self._touch(seat)
        if self.state == "stable":
            reply(SyncGroupResponse(assignment=self.assignments.get(request.member_id, b"")))
            return
        seat.sync = reply
        if request.member_id == self.leader:
            self.assignments = {row.member_id: row.assignment for row in request.assignments}
            self.state = "stable"
            for member_id, other in self.seats.items():
                if other.sync is not None:
                    self._touch(other)
                    other.sync(SyncGroupResponse(assignment=self.assignments.get(member_id, b"")))
                    other.sync = None

    def _beat(self, request: HeartbeatRequest) -> int:
        code = self._standing(request.member_id, request.generation_id)
        if code:
            return code
        self._touch(self.seats[request.member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state == "joining" else ErrorCode.NONE

    def _standing(self, member_id: str, generation: int) -> int:
        if member_id not in self.seats:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def remove(self, member_id: str) -> None:
        """A member goes."""
        del self.seats[member_id]
        if self.state != "joining":
            self._begin()
        self._end_join(late=False)

    def tick(self) -> None:
        """Whoever was silent is out, and a round that takes too long ends."""
        for member_id, seat in list(self.seats.items()):
            waits = seat.join is not None or seat.sync is not None
            if seat.deadline_ms <= self.world.now_ms and not waits:
                self.world.say(f"{member_id} was silent")
                self.remove(member_id)
        if self.state == "joining" and self.world.now_ms >= self.round_end_ms:
            self._end_join(late=True)
        elif self.state == "syncing" and self.world.now_ms >= self.round_end_ms and self.leader in self.seats:
            self.remove(self.leader)


@dataclass
class Process:
    """What runs an instance; it counts until it is gone."""

    ending: bool = False
    status: "Status" = field(default_factory=lambda: Status(0, 0, "", runs=False))


@dataclass(frozen=True)
class Status:
    """What was last written of an instance: whether somebody may be doing it, and who said so."""

    generation: int
    life: int
    url: str
    runs: bool


@dataclass
class Topic:
    """The config topic, as what it wants at each offset."""

    wanted: list[frozenset[Instance]] = field(default_factory=lambda: [frozenset()])


class Worker:
    """One life of one worker: member, group machine, and processes."""

    stops_when_lost = True
    makes_group = g.GroupMachine

    def __init__(
        self,
        world: "World",
        url: str,
        life: int,
        make: "Make",
        over: Sequence["Worker"] = (),
    ) -> None:
        self.world = world
        self.url = url
        self.life = life
        self.machine = m.MemberMachine(MEMBERS)
        self.known_as = ""  # the member that its file tells of
        self.placement = make([each.alone for each in over if each.alone is not None])
        gone = frozenset(each.known_as for each in over)
        self.group = self.makes_group(url, self.placement, lease_ms=MEMBERS.session_timeout_ms, gone=gone)
        self.events: deque[m.Event | g.Event] = deque()
        self.stepping = False
        self.allowed: frozenset[Instance] = frozenset()
        self.generation = 0
        self.lease_until_ms = 0
        self.processes: dict[Instance, Process] = {}
        self.read = 0
        self.alive = True
        self.frozen_until_ms = 0
        self.cut = False
        self.leaving = False
        self.left = False
        self.stops: list[Instance] = []
        self.over = {each.life for each in over}  # lives of which it knows that nothing runs any more
        self.alone: AloneIn | None = None  # its last round, if there was nobody else in it and nobody was waited for
        self.board = dict(world.statuses)  # the status topic, as far as it was read here
        self.tell(g.Listed(members=frozenset(world.coordinator.seats)))
        self.tell(g.Look())

    def facts(self) -> g.Facts:
        """How things stand here."""
        return g.Facts(
            wanted=self.world.topic.wanted[self.read],
            config_offset=self.read,
            running=frozenset(self.processes),
            settled=self.machine.phase is m.Phase.STABLE,
        )

    def said_to_run(self) -> frozenset[Instance]:
        """What the status topic says to run, but for what is known to have ended."""
        return frozenset(
            instance
            for instance, status in self.board.items()
            if status.runs
            and status.life not in self.over
            and (instance in self.processes or status.url != self.url or status.generation > self.generation)
        )

    def tell(self, event: m.Event | g.Event) -> None:
        """One step and what comes of it, unless it is no more or stands still; from within a step, behind it."""
        if not self.alive:
            return
        if self.world.now_ms < self.frozen_until_ms:
            self.world.at(self.frozen_until_ms + 1, lambda: self.tell(event))
            return
        self.events.append(event)
        if self.stepping:
            return
        self.stepping = True
        while self.events:
            self.step(self.events.popleft())
        self.stepping = False

    def step(self, event: m.Event | g.Event) -> None:
        """What comes of one event."""
        if isinstance(event, g.Event):
            for action in self.group.step(event, self.facts(), self.world.now_ms):
                self.act(action)
            return
        for each in self.machine.step(event, self.world.now_ms):
            match each:
                case m.Seek(token=token):
                    self.world.seek(self, token)
                case m.Ask():
                    self.world.ask(self, each)
                case m.WakeAt(at_ms=at_ms):
                    self.world.at(at_ms, lambda: self.tell(m.Tick()))
                case m.HangUp():
                    pass
                case m.Decide():
                    heard = max((status.generation for status in self.board.values()), default=0)
                    self.step(g.Lead(decide=each, said_to_run=self.said_to_run(), generation_heard=heard))
                case m.Lost() if not self.stops_when_lost:
                    pass
                case _:
                    self.step(each)

    def act(self, action: g.Action) -> None:
        """What the group machine says."""
        match action:
            case g.Tell(event=event):
                self.tell(event)
            case g.Allow(generation=generation, instances=instances):
                self.world.say(f"{self.url}#{self.life} may do in generation {generation}: {sorted(instances)}")
                self.allowed, self.generation = instances, generation
                self.known_as, alone_in = self.group.member_id, self.group.alone_in
                self.alone = AloneIn(generation=alone_in, overall=generation) if alone_in > 0 else None
                self.reconcile()
            case g.EndAll(reason=reason):
                self.world.say(f"{self.url}#{self.life} lost: {reason}")
                if self.world.now_ms <= self.frozen_until_ms + 1:  # the guardian has seen to it meanwhile
                    for instance in list(self.processes):
                        self.world.unsay(self, instance, self.processes.pop(instance))
            case g.WakeAt(at_ms=at_ms):
                self.world.at(at_ms, lambda: self.tell(g.Look()))
            case g.Over(reason=None):
                self.left = True
            case g.Over(reason=reason):
                raise Broken(f"{self.url} is out of the group: {reason}")
            case g.Trouble(reason=reason):
                raise Broken(f"{self.url} does not understand: {reason}")
            case g.Lease(until_ms=until_ms):
                self.lease_until_ms = until_ms

    def stop(self) -> None:
        """It is to end in order."""
        self.leaving = True
        self.tell(g.Stop())

    def reconcile(self) -> None:
        """Start and stop processes."""
        for instance in list(self.processes):
            if instance not in self.allowed and not self.processes[instance].ending:
                self.stops.append(instance)
                self.end(instance)
        if self.world.now_ms >= self.lease_until_ms:
            return  # the guardian starts nothing, whether its worker has looked at the time or not
        for instance in sorted(self.allowed - set(self.processes)):
            self.processes[instance] = Process()
            self.world.begins(self, instance)

    def end(self, instance: Instance) -> None:
        """A process takes its time to end."""
        self.processes[instance].ending = True
        gone = self.processes[instance]
        self.world.at(self.world.now_ms + self.world.end_ms(), lambda: self.ended(instance, gone))

    def ended(self, instance: Instance, process: Process) -> None:
        """It is gone; what is assigned again starts again."""
        if self.processes.get(instance) is not process:
            return
        if self.alive and self.world.now_ms < self.frozen_until_ms:
            self.world.at(self.frozen_until_ms, lambda: self.ended(instance, process))
            return
        del self.processes[instance]
        if self.alive:
            self.world.unsay(self, instance, process)
            self.reconcile()
            self.tell(g.Look())

    def look(self) -> None:
        """What happens to a worker from time to time: it reads, and sees what time it is."""
        if not self.alive or self.world.now_ms < self.frozen_until_ms:
            return
        if not self.cut:
            self.board = dict(self.world.statuses)
        if self.world.rng.random() < 0.7:
            self.read = min(self.read + 1, len(self.world.topic.wanted) - 1)
        self.tell(g.Look())


class World:
    """Coordinator, workers, and time."""

    def __init__(self, seed: int, make: Make, worker: type[Worker] = Worker) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 1_000
        self.topic = Topic()
        self.seated: set[int] = set()
        self.statuses: dict[Instance, Status] = {}  # the status topic
        self.workers: list[Worker] = []
        self.dead: list[Worker] = []
        self.trace: list[str] = []
        self.faults = True
        self.coordinator = Coordinator(self)
        self._make = make
        self._worker = worker
        self.end_ms: Callable[[], int] = lambda: self.rng.randrange(END_MS)  # that a process takes
        self._starts = random.Random(f"starts {seed}")
        self.generations: dict[Instance, tuple[int, int]] = {}  # of its last start: the generation, and whose
        self.lives: list[Worker] = []  # that are over, and have left a file that says so
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._lives = itertools.count(1)

    def say(self, line: str) -> None:
        """One line of the trace."""
        self.trace.append(f"{self.now_ms:>8} {line}")

    def begins(self, worker: Worker, instance: Instance) -> None:
        """A process starts, and the status topic hears of it."""
        generation, life = self.generations.get(instance, (-1, worker.life))
        if life != worker.life and generation >= worker.generation:
            raise Broken(
                f"{instance} starts on {worker.url}#{worker.life} in {worker.generation}, not above {generation}"
            )
        self.generations[instance] = (worker.generation, worker.life)
        process = worker.processes[instance]
        process.status = Status(worker.generation, worker.life, worker.url, runs=True)
        started_ms = self.now_ms + self._starts.choice([100, 1_000, 5_000])  # nothing is said before it has started
        self.at(started_ms, lambda: self._write(worker, instance, process))

    def _write(self, worker: Worker, instance: Instance, process: Process) -> None:
        """A status of a process reaches the topic, once its worker does."""
        if not worker.alive or (process.status.runs and worker.processes.get(instance) is not process):
            return
        if worker.cut or self.now_ms < worker.frozen_until_ms:
            self.at(self.now_ms + 500, lambda: self._write(worker, instance, process))
            return
        known = self.statuses.get(instance)
        if known is None or known.generation <= process.status.generation:
            self.statuses[instance] = process.status

    def runs_elsewhere(self, worker: Worker) -> frozenset[Instance]:
        """What a status topic would say in which nothing is missing."""
        lives = (each for each in (*self.workers, *self.dead) if each is not worker and each.life not in worker.over)
        return frozenset(instance for life in lives for instance in life.processes)

    def unsay(self, worker: Worker, instance: Instance, process: Process) -> None:
        """A worker's last word about an instance; who is killed has none."""
        process.status = Status(worker.generation, worker.life, worker.url, runs=False)
        self._write(worker, instance, process)

    def at(self, at_ms: int, what: Callable[[], None]) -> None:
        """Something happens later."""
        heapq.heappush(self._events, (max(at_ms, self.now_ms), next(self._order), what))

    def delay(self) -> int:
        """How long a message takes."""
        slow = self.faults and self.rng.random() < 0.03
        return self.rng.randrange(3_000) if slow else self.rng.randrange(1, 20)

    def seek(self, worker: Worker, token: int) -> None:
        """Find the coordinator, if it can be reached."""
        cut = worker.cut
        event: m.Event = m.Failed(token=token, reason="cut off") if cut else m.Found(token=token, node_id=1)
        self.at(self.now_ms + (500 if cut else self.delay()), lambda: worker.tell(event))

    def ask(self, worker: Worker, ask: m.Ask) -> None:
        """A request on its way."""
        state = {"over": False}

        def reply(answer: Message) -> None:
            self.at(self.now_ms + self.delay(), lambda: back(answer))

        def back(answer: Message) -> None:
            if not worker.cut and not state["over"]:
                state["over"] = True
                worker.tell(m.Answered(token=ask.token, answer=answer))

        def late() -> None:
            if not state["over"]:
                state["over"] = True
                worker.tell(m.Failed(token=ask.token, reason="no answer"))

        def arrive() -> None:
            if not worker.cut:
                self.coordinator.handle(ask.request, reply)

        self.at(self.now_ms + self.delay(), arrive)
        self.at(self.now_ms + ask.timeout_ms, late)

    def start(self, url: str, *, knows: bool | None = None) -> None:
        """One more worker, which may know of lives that are over."""
        knows = self.rng.random() < 0.5 if knows is None else knows
        over = [life for life in self.lives if life.known_as] if knows else []
        gone = frozenset(life.known_as for life in over)
        self.say(f"start {url}, which knows of the end of {sorted(gone)}")
        for member_id in sorted(gone & self.coordinator.seats.keys()):
            self.coordinator.remove(member_id)
        self.lives = [life for life in self.lives if life not in over]
        self.workers.append(self._worker(self, url, next(self._lives), self._make, over))

    def kill(self, worker: Worker) -> None:
        """kill -9; the processes die a little later."""
        self.say(f"kill {worker.url}#{worker.life}")
        worker.alive = False
        self.workers.remove(worker)
        self.dead.append(worker)
        if self.now_ms <= worker.frozen_until_ms:
            worker.processes.clear()  # what stands still has lost its power
        for instance in list(worker.processes):
            worker.end(instance)

    def run(self, until_ms: int) -> None:
        """Time passes."""
        while self.now_ms < until_ms:
            while self._events and self._events[0][0] <= self.now_ms:
                heapq.heappop(self._events)[2]()
                self.check()
            self.coordinator.tick()
            if self.now_ms % 100 == 0:
                for worker in list(self.workers):
                    worker.look()
                    if worker.left:
                        self.say(f"{worker.url}#{worker.life} has left")
                        worker.alive = False
                        self.workers.remove(worker)
                        if worker.alone is not None:
                            self.lives.append(worker)
                self.check()
            upcoming = self._events[0][0] if self._events else until_ms
            self.now_ms = min(until_ms, max(upcoming, self.now_ms + 1), (self.now_ms // 100 + 1) * 100)

    def check(self) -> None:
        """No instance is run twice."""
        running: dict[Instance, Worker] = {}
        for worker in (*self.workers, *self.dead):
            if worker.alive and self.now_ms <= worker.frozen_until_ms + 1:  # it hears at last what time it is
                continue
            for instance in worker.processes:
                other = running.setdefault(instance, worker)
                if other is not worker:
                    raise Broken(f"{instance} runs on {other.url}#{other.life} and {worker.url}#{worker.life}")
        self.lives += [worker for worker in self.dead if not worker.processes]
        self.dead = [worker for worker in self.dead if worker.processes]

    def want(self, connectors: int, tasks: int) -> None:
        """The config topic says something else."""
        wanted = {Instance(f"c{number}", task) for number in range(connectors) for task in range(CONNECTOR, tasks)}
        self.topic.wanted.append(frozenset(wanted))

    def misfortune(self) -> None:
        """Something happens to somebody."""
        fate = self.rng.random()
        if len(self.workers) < 2 or (fate < 0.2 and len(self.workers) < 5):
            used = {worker.url for worker in self.workers}
            self.start(self.rng.choice([url for url in ("w1", "w2", "w3", "w4", "w5", "w6") if url not in used]))
            return
        worker = self.rng.choice(self.workers)
        if fate < 0.4:
            self.kill(worker)
        elif fate < 0.55:
            self.say(f"freeze {worker.url}")
            thaw_ms = self.now_ms + self.rng.choice([1_000, 9_000, 16_000, 40_000])
            worker.frozen_until_ms = max(worker.frozen_until_ms, thaw_ms)
            self.at(worker.frozen_until_ms, lambda: None)
        elif fate < 0.75:
            self.say(f"cut or join {worker.url}")
            worker.cut = not worker.cut
        elif fate < 0.85:
            self.say(f"stop {worker.url}")
            worker.stop()
        else:
            self.want(self.rng.randrange(4), self.rng.randrange(4))

    def settle(self) -> None:
        """No more faults; when all is quiet, what is wanted runs, evenly."""
        self.faults = False
        for worker in self.workers:
            worker.cut = False
        if all(worker.leaving for worker in self.workers):
            self.start("w7")
        self.run(self.now_ms + 150_000)
        wanted = self.topic.wanted[-1]
        running = [instance for worker in self.workers for instance in worker.processes]
        if sorted(running) != sorted(wanted):
            raise Broken(f"runs {sorted(running)}, wanted are {sorted(wanted)}")
        tasks = [sum(each.task != CONNECTOR for each in worker.processes) for worker in self.workers]
        if max(tasks) - min(tasks) > 1:
            raise Broken(f"uneven: {tasks}")
        self.faults = True
