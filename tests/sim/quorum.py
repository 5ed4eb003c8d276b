"""A metadata quorum under faults: members, disks, clocks and a network

The machines are production's. Everything else is the smallest thing that can go wrong in the ways that matter: a disk
that loses what was not synced, a network that delays, drops, repeats and reorders and is cut both ways or one way,
processes that are killed, paused and started again, clocks of different speed, a client that appends to whoever says
that it leads, voters that come and go, disks that are wiped once nobody counts on them.

After every step of a machine it is asked what must always hold (`QuorumSimulation.judge`); `heal` ends the faults, and
then one leader has to be found and everybody has to hold the same within a bounded time.
"""

import heapq
import random
import uuid
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from tests.sim.quorum_disk import LEADER_CHANGE, Entry, SimulatedLog, decode, encode
from tidemill.broker.quorum.raft.actions import (
    Action,
    Append,
    AppendLeaderChange,
    AppendVoters,
    BeginSnapshot,
    InstallSnapshot,
    Persist,
    Remember,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    Send,
    StoreSnapshot,
    Truncate,
)
from tidemill.broker.quorum.raft.election import ElectionState
from tidemill.broker.quorum.raft.events import (
    Answered,
    AppendRefused,
    Event,
    Failed,
    LogChanged,
    Received,
    Resign,
    SnapshotInstalled,
    SnapshotRefused,
    Tick,
    VotersChanged,
)
from tidemill.broker.quorum.raft.machine import QuorumMachine
from tidemill.broker.quorum.raft.messages import (
    AddVoterRequest,
    ChangeRequest,
    EpochResponse,
    RemoveVoterRequest,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from tidemill.broker.quorum.raft.settings import QuorumSettings
from tidemill.broker.quorum.raft.voter_history import BOOTSTRAPPED
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint, VoterSet
from tidemill.core.error_code import ErrorCode

SETTINGS = QuorumSettings(
    election_timeout_ms=100,
    fetch_timeout_ms=200,
    election_backoff_max_ms=100,
    request_timeout_ms=200,
    retry_backoff_ms=5,
    fetch_wait_max_ms=80,
    fetch_bytes_max=16 * 4,
    snapshot_bytes_max=16 * 5,
    observer_session_ms=5_000,
)
"""A tenth of what is usual, in the same proportions."""

CLUSTER = "simulated"
BOOTSTRAP_BELOW = -1
EVENTS_MAX = 200_000
"""Of one seed: more is a machine that talks to itself."""


class Violation(AssertionError):
    """What must never happen has."""


@dataclass(slots=True)
class Host:
    """Mutable: one node. Its log, its election state and the voters it was formatted with outlive a kill."""

    node_id: int
    directory_id: uuid.UUID
    formatted: VoterSet | None
    log: SimulatedLog = field(default_factory=SimulatedLog)
    election: ElectionState = field(default_factory=ElectionState)
    machine: QuorumMachine | None = None
    incarnation: int = 0
    rate: float = 1.0
    paused_until: float = 0.0
    timer: int = 0
    high_watermark: int = 0
    checked: int = 0
    events: deque[Event] = field(default_factory=deque)
    syncing: bool = False
    listener: str = "CONTROLLER"
    forgotten: bool = False

    @property
    def endpoint(self) -> VoterEndpoint:
        return VoterEndpoint(self.listener, f"n{self.node_id}", 9093)

    @property
    def voter(self) -> Voter:
        return Voter(node_id=self.node_id, directory_id=self.directory_id, endpoints=(self.endpoint,))


class QuorumSimulation:
    """Mutable: the quorum, event by event from a seed."""

    def __init__(
        self,
        seed: int,
        *,
        voters: int = 3,
        observers: int = 2,
        configured: bool = False,
        machine: type[QuorumMachine] = QuorumMachine,
    ) -> None:
        self.rng = rng = random.Random(seed)
        self.make = machine
        self.now = 1_000.0
        self.queue: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self.sequence = 0
        self.healed = False
        self.drop = rng.choice((0.0, 0.01, 0.05, 0.15))
        self.repeat = rng.choice((0.0, 0.02, 0.1))
        self.delay = rng.choice((1.0, 3.0, 10.0))
        self.sync_delay = rng.choice((0.5, 5.0, 30.0))
        self.fault_every = rng.choice((40.0, 120.0, 300.0))
        self.voters = voters
        self.changes_voters = not configured and rng.random() < 0.7
        self.cuts: set[tuple[int, int]] = set()
        self.directories = 0
        self.numbers = 0
        self.sets: list[VoterSet] = []
        self.seen: Counter[str] = Counter()
        self.trace: list[str] | None = None
        # what was promised
        self.committed: list[Entry] = []
        self.committed_in: list[int] = []  # the epochs in which that was
        self.written: dict[tuple[int, int], Entry] = {}
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, uuid.UUID, int], tuple[int, uuid.UUID]] = {}
        self.epoch_max = 0
        self.asked: dict[Hashable, ChangeRequest] = {}

        self.hosts: dict[int, Host] = {}
        everybody = range(1, voters + observers + 1)
        for node_id in everybody:
            self.hosts[node_id] = Host(
                node_id, self.new_directory(), None, rate=rng.choice((0.8, 0.95, 1.0, 1.05, 1.3))
            )
        first = VoterSet.of(self.hosts[each].voter for each in everybody[:voters])
        self.configured = VoterSet()
        if configured:
            self.configured = VoterSet.of(replace(each, directory_id=uuid.UUID(int=0)) for each in first)
        else:
            for node_id in everybody[:voters]:
                self.hosts[node_id].formatted = first
        for host in self.hosts.values():
            self.start(host)
        self.at(rng.random() * self.fault_every, self.fault)
        if self.changes_voters:
            self.at(100, self.change_now_and_then)
        self.at(rng.random() * 20, self.client)

    # -- time

    def at(self, delay: float, do: Callable[..., None], *args: object) -> None:
        self.sequence += 1
        heapq.heappush(self.queue, (self.now + delay, self.sequence, do, args))

    def run(self, for_ms: float) -> None:
        """So long, in simulated time, with everything judged after each step."""
        until = self.now + for_ms
        while self.queue and self.queue[0][0] <= until:
            self.now, _, do, args = heapq.heappop(self.queue)
            self.seen["events"] += 1
            if self.seen["events"] > EVENTS_MAX:
                raise Violation("no end of events")
            do(*args)
        self.now = until

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now:9.1f} {text}")

    def spread(self, mean: float) -> float:
        return min(self.rng.expovariate(1 / mean), mean * 20)

    # -- hosts

    def new_directory(self) -> uuid.UUID:
        self.directories += 1
        return uuid.UUID(int=self.directories)

    def local(self, host: Host) -> int:
        return int(self.now * host.rate)

    def start(self, host: Host) -> None:
        """Whatever is on the disk is read, and synced by that."""
        host.incarnation += 1
        host.timer += 1
        host.syncing = False
        host.log.durable_end = host.log.offset_end
        host.log.part = None
        if self.changes_voters and not self.healed and self.rng.random() < 0.1:
            self.seen["moves"] += 1
            host.listener = f"C{self.seen['moves']}"
        host.machine = self.make(
            node_id=host.node_id,
            directory_id=host.directory_id,
            cluster_id=CLUSTER,
            election=host.election,
            log=host.log,
            voters=self.configured,
            settings=SETTINGS,
            rng=random.Random(self.rng.random()),
            now_ms=self.local(host),
            endpoints=(host.endpoint,),
            bootstrap=[(f"n{each}", 9093) for each in self.hosts],
            has_forgotten=host.forgotten,
        )
        host.checked, host.high_watermark, host.paused_until = 0, 0, self.now
        host.events.clear()
        if host.formatted is not None:
            self.tell(host, VotersChanged(offset=BOOTSTRAPPED, voters=host.formatted))
        for event in self.voters_in(host.log.entries, host.log.log_start_offset):
            self.tell(host, event)
        self.tell(host, Tick())

    def voters_in(self, entries: list[Entry], start: int) -> list[VotersChanged]:
        """Those of the snapshot as one at its end, and those of the log behind it."""
        found = [(offset, self.sets[-1 - each.number]) for offset, each in enumerate(entries) if each.number < 0]
        before = [voters for offset, voters in found if offset < start][-1:]
        events = [VotersChanged(offset=start - 1, voters=each) for each in before]
        return events + [VotersChanged(offset=offset, voters=each) for offset, each in found if offset >= start]

    def stop(self, host: Host, *, power: bool) -> None:
        if host.machine is not None:
            self.seen["power cuts" if power else "kills"] += 1
        host.machine = None
        host.incarnation += 1
        host.events.clear()
        if power:
            self.lose(host)

    def lose(self, host: Host) -> None:
        """Power is cut: what was not synced may go, and now and then something that was.

        Of one node at a time, and where the others are a majority: what a majority has lost nobody has promised.
        """
        host.log.lose(self.rng.randint(host.log.durable_end, host.log.offset_end))
        sound = not self.changes_voters and self.voters >= 3 and not any(each.forgotten for each in self.hosts.values())
        if sound and host.node_id <= self.voters and self.rng.random() < 0.2:
            low, end = host.log.log_start_offset, host.log.offset_end
            if low < end:
                self.seen["rotten"] += 1
                host.forgotten = True
                host.log.truncate(self.rng.randrange(low, end))

    def tell(self, host: Host, event: Event) -> None:
        """One event, and whatever the host says to its own machine because of it."""
        if host.machine is None:
            return
        if host.paused_until > self.now:
            self.at(host.paused_until - self.now + self.rng.random(), self.tell_later, host, host.incarnation, event)
            return
        host.events.append(event)
        while host.events and host.machine is not None:
            led = host.machine.leads
            event = host.events.popleft()
            actions = host.machine.step(event, self.local(host))
            if self.trace is not None:
                self.say(f"n{host.node_id} {host.machine.role.value} {host.machine.epoch} hears {event} does {actions}")
            for action in actions:
                self.do(host, action)
            self.judge(host, led=led)
        if not isinstance(event, VotersChanged):  # a start tells of them one after the other
            self.judge_voters(host)
        self.set_timer(host)

    def tell_later(self, host: Host, incarnation: int, event: Event) -> None:
        if host.incarnation == incarnation:
            self.tell(host, event)

    def set_timer(self, host: Host) -> None:
        deadline = host.machine.next_deadline_ms() if host.machine is not None else None
        host.timer += 1
        if deadline is not None:
            delay = (deadline + 1) / host.rate - self.now
            self.at(max(delay, 0.1) + self.rng.random(), self.tick, host, host.timer)

    def tick(self, host: Host, timer: int) -> None:
        if host.timer == timer:
            self.tell(host, Tick())

    # -- what machines want done

    def do(self, host: Host, action: Action) -> None:
        log = host.log
        match action:
            case Persist():
                self.persist(host, action.state)
            case Remember():
                self.seen["remembered"] += 1
                host.forgotten = False
            case Send():
                self.send(host, action)
            case Reply():
                self.reply(host, action.token, action.response)
            case ReplyWithRecords():
                count = max(action.bytes_max // 16, 1)
                data = encode(log.entries[action.offset : action.offset + self.rng.randint(1, count)])
                self.reply(host, action.token, replace(action.response, records=data))
            case ReplyWithSnapshot():
                data = log.read_snapshot(action.snapshot_id, action.position, self.rng.randint(16, action.bytes_max))
                self.reply(host, action.token, replace(action.response, data=data))
            case Append():
                self.append_fetched(host, action)
            case Truncate():
                self.seen["truncations"] += 1
                self.truncate(host, action.offset)
                host.events.append(LogChanged())
            case AppendLeaderChange():
                self.begin_epoch(host, action)
            case AppendVoters():
                late = host.machine is not None and host.machine.is_settled and self.rng.random() < 0.7
                if late:  # behind what else is on its way into the log
                    self.at(
                        self.spread(self.rng.choice((2.0, 20.0, 100.0))),
                        self.append_voters_later,
                        host,
                        host.incarnation,
                        action,
                    )
                else:
                    self.append_voters(host, action)
            case BeginSnapshot():
                log.part = action.snapshot_id, bytearray()
            case StoreSnapshot():
                if log.part is None or (log.part[0], len(log.part[1])) != (action.snapshot_id, action.position):
                    raise Violation(f"node {host.node_id} gets {action.snapshot_id} at {action.position}, with a gap")
                log.part[1].extend(action.data)
            case InstallSnapshot():
                self.install(host, action)

    def persist(self, host: Host, state: ElectionState) -> None:
        """An epoch begins with somebody who votes for itself in it, and with nobody else."""
        if not state.may_follow(host.election):
            raise Violation(f"node {host.node_id} forgets {host.election} for {state}")
        if state.epoch > self.epoch_max:
            if state.voted_id != host.node_id:
                raise Violation(f"node {host.node_id} is in epoch {state.epoch}, which nobody has begun")
            self.epoch_max = state.epoch
            self.seen["elections"] += 1
        if state.voted_id == host.node_id and state.epoch > host.election.epoch:
            self.note_vote(host, state.epoch, host.node_id, host.directory_id)
        host.election = state

    def note_vote(self, host: Host, epoch: int, node_id: int, directory_id: uuid.UUID) -> None:
        vote = node_id, directory_id
        given = self.votes.setdefault((host.node_id, host.directory_id, epoch), vote)
        if given != vote:
            raise Violation(f"node {host.node_id} votes for {given[0]} and for {node_id} in epoch {epoch}")

    def begin_epoch(self, host: Host, action: AppendLeaderChange) -> None:
        other = self.leaders.setdefault(action.epoch, host.node_id)
        if other != host.node_id:
            raise Violation(f"{other} and {host.node_id} lead epoch {action.epoch}")
        self.seen["leaders"] += 1
        before = bisect_left(self.committed_in, action.epoch)  # who is elected late need not know of later epochs
        if host.log.entries[:before] != self.committed[:before]:
            raise Violation(f"node {host.node_id} leads epoch {action.epoch} without all that is committed")
        self.append(host, Entry(action.epoch, LEADER_CHANGE))

    def append_voters_later(self, host: Host, incarnation: int, action: AppendVoters) -> None:
        """In a turn of its own, unless the epoch is over by then."""
        machine = host.machine
        if host.incarnation != incarnation or machine is None or not machine.leads or machine.epoch != action.epoch:
            return
        if host.paused_until > self.now:
            self.at(host.paused_until - self.now, self.append_voters_later, host, incarnation, action)
            return
        self.seen["voters written late"] += 1
        self.append_voters(host, action)
        heard = [*host.events]
        host.events.clear()
        for event in heard:
            self.tell(host, event)

    def append_voters(self, host: Host, action: AppendVoters) -> None:
        """One change at a time, and by a leader that has committed something in its epoch (KIP-853)."""
        before = [offset for offset, each in enumerate(host.log.entries) if each.number < 0]
        assert host.machine is not None
        known = host.machine.high_watermark  # judged when the step is over
        if before:
            voters = self.sets[-1 - host.log.entries[before[-1]].number]
            if before[-1] >= known or not voters.overlaps(action.voters):
                raise Violation(f"node {host.node_id} makes {action.voters.ids} of {voters.ids} at {before[-1]}")
            if all(each.epoch != action.epoch for each in host.log.entries[:known]):
                raise Violation(f"node {host.node_id} has committed nothing in epoch {action.epoch}")
        self.seen["sets of voters"] += 1
        self.sets.append(action.voters)
        self.append(host, Entry(action.epoch, -len(self.sets)))

    def append(self, host: Host, entry: Entry) -> None:
        offset = host.log.append(entry)
        known = self.written.setdefault((entry.epoch, offset), entry)
        if known != entry:
            raise Violation(f"epoch {entry.epoch} has {known} and {entry} at offset {offset}")
        self.sync_soon(host)
        if entry.number < 0:
            host.events.append(VotersChanged(offset=offset, voters=self.sets[-1 - entry.number]))
        host.events.append(LogChanged())

    def append_fetched(self, host: Host, action: Append) -> None:
        if action.offset != host.log.offset_end:
            raise Violation(f"node {host.node_id} appends at {action.offset}, and its end is {host.log.offset_end}")
        if not self.healed and self.rng.random() < 0.02:
            self.seen["appends refused"] += 1
            host.events.append(AppendRefused())  # the disk is full, or the bytes were damaged on their way
            return
        for entry in decode(action.records):
            offset = host.log.append(entry)
            if self.written.get((entry.epoch, offset)) != entry:
                raise Violation(f"node {host.node_id} has {entry} at {offset}, which no leader wrote there")
            if entry.number < 0:
                host.events.append(VotersChanged(offset=offset, voters=self.sets[-1 - entry.number]))
        self.sync_soon(host)
        host.events.append(LogChanged())

    def truncate(self, host: Host, offset: int) -> None:
        if offset < len(self.committed) and host.log.entries[offset] == self.committed[offset]:
            raise Violation(f"node {host.node_id} cuts its log at {offset}, and what is there is committed")
        host.log.truncate(offset)
        host.syncing = False
        if host.log.durable_end < host.log.offset_end:
            self.sync_soon(host)

    def install(self, host: Host, action: InstallSnapshot) -> None:
        part = host.log.part
        assert part is not None
        end = action.snapshot_id.offset_end
        if bytes(part[1]) != encode(self.committed[:end]) or len(self.committed) < end:
            raise Violation(f"node {host.node_id} takes {len(part[1])} bytes for all of {action.snapshot_id}")
        host.log.part = None
        if self.rng.random() < 0.05 and not self.healed:
            if host.log.offset_end >= end:  # it was cut before the disk had no room for what was to come
                self.truncate(host, end - 1)
            host.events.append(SnapshotRefused(snapshot_id=action.snapshot_id))
            return
        self.seen["snapshots installed"] += 1
        host.log.install(action.snapshot_id, bytes(part[1]))
        host.syncing = False
        host.events.extend(self.voters_in(host.log.entries, end))
        host.events.append(SnapshotInstalled(snapshot_id=action.snapshot_id))

    def sync_soon(self, host: Host) -> None:
        if not host.syncing:
            host.syncing = True
            self.at(
                self.spread(self.sync_delay), self.synced, host, host.incarnation, host.log.cuts, host.log.offset_end
            )

    def synced(self, host: Host, incarnation: int, cuts: int, end: int) -> None:
        if host.incarnation != incarnation or host.log.cuts != cuts:
            return
        host.syncing = False
        host.log.durable_end = end
        if end < host.log.offset_end:
            self.sync_soon(host)
        self.tell(host, LogChanged())

    # -- network

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self.cuts

    def fates(self, source: int, target: int) -> list[float]:
        """When a message arrives: never, once or twice."""
        if self.is_cut(source, target) or (not self.healed and self.rng.random() < self.drop):
            return []
        late = not self.healed and self.rng.random() < self.repeat
        delays = [self.spread(self.delay * (30 if late else 1))]
        if not self.healed and self.rng.random() < self.repeat:
            delays.append(self.spread(self.delay * 10))
        return delays

    def send(self, host: Host, action: Send) -> None:
        if isinstance(action.request, VoteRequest) and not action.request.pre_vote:
            self.seen["votes asked"] += 1
        target = next(
            (each for each in self.hosts.values() if each.endpoint[1:] in [e[1:] for e in action.endpoints]), None
        )
        fates = self.fates(host.node_id, target.node_id) if target is not None else []
        if target is None or target.machine is None or (not fates and self.rng.random() < 0.3):
            nobody = target is None or target.machine is None
            refused = nobody or self.rng.random() < 0.1  # a name that means another node for a while
            failed = Failed(request_id=action.request_id, refused=refused)
            self.at(self.spread(self.delay), self.tell_later, host, host.incarnation, failed)
            return
        for delay in fates:
            self.sequence += 1
            token = host.node_id, host.incarnation, action.request_id, self.sequence
            self.at(delay, self.deliver, target, Received(token=token, request=action.request))

    def deliver(self, host: Host, event: Event) -> None:
        self.tell(host, event)

    def reply(self, host: Host, token: Hashable, response: Response) -> None:
        request = self.asked.pop(token, None)
        if request is not None:
            assert isinstance(response, EpochResponse)
            self.hear_of_change(host, request, response)
            return
        assert isinstance(token, tuple)
        source, incarnation, request_id, _ = token
        if isinstance(response, VoteResponse) and response.granted:
            self.seen["grants"] += 1
        for delay in self.fates(host.node_id, source):
            event = Answered(request_id=request_id, response=response)
            self.at(delay, self.tell_later, self.hosts[source], incarnation, event)

    # -- clients

    def client(self) -> None:
        """Append to whoever leads, or thinks so."""
        if not self.healed:
            self.at(self.spread(30), self.client)
        leading = self.leading()
        if leading:
            self.produce(self.rng.choice(leading))

    def produce(self, host: Host) -> None:
        if host.machine is None or host.paused_until > self.now:
            return
        for _ in range(self.rng.randint(1, 3)):
            self.numbers += 1
            self.append(host, Entry(host.machine.epoch, self.numbers))
        host.events.clear()
        self.tell(host, LogChanged())

    def change_now_and_then(self) -> None:
        if not self.healed:
            self.at(self.spread(150), self.change_now_and_then)
            self.change_voters()

    def change_voters(self) -> None:
        leading = self.leading()
        if not leading:
            return
        leader = self.rng.choice(leading)
        assert leader.machine is not None
        voters = leader.machine.voters
        roll = self.rng.random()
        request: ChangeRequest
        timeout_ms = self.rng.choice((100, 1000, 1000))
        strangers = [each for each in self.hosts.values() if each.node_id not in voters or self.rng.random() < 0.1]
        if roll < 0.5 and strangers:
            host = self.rng.choice(strangers)
            request = AddVoterRequest(cluster_id=CLUSTER, voter=host.voter, timeout_ms=timeout_ms)
        elif roll < 0.95:
            chosen = voters.get(leader.node_id) if self.rng.random() < 0.3 else None
            chosen = chosen or self.rng.choice(voters.voters)
            request = RemoveVoterRequest(
                cluster_id=CLUSTER, node_id=chosen.node_id, directory_id=chosen.directory_id, timeout_ms=timeout_ms
            )
        else:
            chosen = self.rng.choice(voters.voters)
            moved = replace(chosen, endpoints=(chosen.endpoints[0]._replace(name=f"C{self.numbers}"),))
            request = UpdateVoterRequest(
                cluster_id=CLUSTER, epoch=leader.machine.epoch, voter=moved, timeout_ms=timeout_ms
            )
        self.sequence += 1
        token = "client", self.sequence
        self.asked[token] = request
        self.tell(leader, Received(token=token, request=request))

    def hear_of_change(self, host: Host, request: ChangeRequest, response: EpochResponse) -> None:
        self.seen[f"changes {response.error.name}"] += 1
        if response.error != ErrorCode.NONE or host.machine is None:
            return
        committed = host.log.entries[: host.machine.high_watermark]
        latest = [self.sets[-1 - each.number] for each in committed if each.number < 0][-1]
        if isinstance(request, AddVoterRequest) and not latest.is_voter(
            request.voter.node_id, request.voter.directory_id
        ):
            raise Violation(f"{request.voter} was added, and is not")
        if isinstance(request, RemoveVoterRequest) and latest.is_voter(request.node_id, request.directory_id):
            raise Violation(f"{request.node_id} was removed, and is there")

    # -- faults

    def fault(self) -> None:
        if self.healed:
            return
        self.at(self.spread(self.fault_every), self.fault)
        host = self.rng.choice([*self.hosts.values()])
        if self.rng.random() < 0.4:  # whoever leads is worth more than one of the others
            host = next((each for each in self.hosts.values() if each.machine and each.machine.leads), host)
        roll = self.rng.random()
        if host.machine is None:
            self.start(host) if roll < 0.7 else self.wipe(host)
        elif roll < 0.14:
            self.stop(host, power=False)
        elif roll < 0.30:
            self.stop(host, power=True)
            if self.rng.random() < 0.5:
                self.start(host)
        elif roll < 0.33:
            for each in self.hosts.values():
                self.stop(each, power=True)
                self.at(self.spread(50), self.start_if_down, each)
        elif roll < 0.40:
            host.paused_until = self.now + self.spread(200)
        elif roll < 0.58:
            self.cut(host)
        elif roll < 0.66:
            self.cuts.clear()
        elif roll < 0.76:
            self.compact(host)
        elif roll < 0.80:
            self.tell(host, Resign(successor=self.rng.choice((None, 1, 2))))

    def start_if_down(self, host: Host) -> None:
        if host.machine is None:
            self.start(host)

    def cut(self, host: Host) -> None:
        """One way or both, from one other node, from all of them, or through the middle."""
        others = [each for each in self.hosts if each != host.node_id]
        if not others:
            return
        roll = self.rng.random()
        if roll < 0.3:
            others = [self.rng.choice(others)]
        elif roll < 0.6:
            others = self.rng.sample(others, len(others) // 2)
        way = self.rng.random()
        for each in others:
            if way < 0.7:
                self.cuts.add((host.node_id, each))
            if way > 0.3:
                self.cuts.add((each, host.node_id))
        self.seen["cuts"] += 1

    def compact(self, host: Host) -> None:
        """A snapshot of something that is committed, and the log before it is gone."""
        low, high = host.log.log_start_offset + 1, min(host.high_watermark, host.log.durable_end)
        if low <= high:
            self.seen["snapshots"] += 1
            host.log.take_snapshot(self.rng.randint(low, high))

    def wipe(self, host: Host) -> None:
        """A new disk, where nobody counts on the old one any more, whichever log wins."""
        sets = [each.formatted for each in self.hosts.values() if each.formatted and not self.sets]
        last = max((offset for offset, each in enumerate(self.committed) if each.number < 0), default=-1)
        for each in self.hosts.values():
            found = [(offset, entry) for offset, entry in enumerate(each.log.entries) if entry.number < 0]
            sets += [self.sets[-1 - entry.number] for offset, entry in found if offset >= last]
        if self.configured or not sets or any(each.is_voter(host.node_id, host.directory_id) for each in sets):
            return
        self.seen["wipes"] += 1
        host.directory_id, host.formatted = self.new_directory(), None
        host.log, host.election = SimulatedLog(), ElectionState()
        self.start(host)

    # -- what must hold

    def judge(self, host: Host, *, led: bool) -> None:
        """After every step of a machine."""
        machine, log = host.machine, host.log
        assert machine is not None
        high_watermark = machine.high_watermark
        if high_watermark < host.high_watermark:
            raise Violation(f"HW of node {host.node_id} goes back from {host.high_watermark} to {high_watermark}")
        if high_watermark > log.offset_end:
            raise Violation(f"HW {high_watermark} of node {host.node_id} is beyond its log's end, {log.offset_end}")
        if machine.election != host.election:
            raise Violation(f"node {host.node_id} goes by {machine.election}, and its disk has {host.election}")
        if machine.leads and led and high_watermark > host.high_watermark:
            self.judge_majority(host, machine, high_watermark)
        host.high_watermark = high_watermark
        for offset in range(host.checked, high_watermark):
            entry = log.entries[offset]
            if offset == len(self.committed):
                self.committed.append(entry)
                self.committed_in.append(machine.epoch)
                if self.committed_in[-2:] != sorted(self.committed_in[-2:]):
                    raise Violation(f"something is committed in epoch {machine.epoch} after a later one")
            elif self.committed[offset] != entry:
                raise Violation(f"{self.committed[offset]} at {offset} is committed, and so is {entry}")
        host.checked = max(host.checked, high_watermark)

    def judge_voters(self, host: Host) -> None:
        """Those of the last set in the log vote, committed or not; where it has none, those it was formatted with."""
        if host.machine is None:
            return
        found = next((each.number for each in reversed(host.log.entries) if each.number < 0), None)
        voters = self.sets[-1 - found] if found is not None else host.formatted or self.configured
        if host.machine.voters != voters:
            raise Violation(f"node {host.node_id} goes by {host.machine.voters.ids}, and its log has {voters.ids}")

    def judge_majority(self, host: Host, machine: QuorumMachine, end: int) -> None:
        """What a leader commits is on the disks of a majority of the voters, and ends with something of its epoch."""
        entries = host.log.entries
        if entries[end - 1].epoch != machine.epoch:
            raise Violation(f"node {host.node_id} commits {entries[end - 1]} in epoch {machine.epoch}")
        holding = [
            each.node_id
            for each in self.hosts.values()
            if machine.voters.is_voter(each.node_id, each.directory_id)
            and (
                each.forgotten  # it has said that it holds this, maybe, and lost it since
                or (each.log.durable_end >= end and each.log.entries[host.checked : end] == entries[host.checked : end])
            )
        ]
        if not machine.voters.has_majority(holding):
            raise Violation(f"node {host.node_id} commits up to {end}, durable on {holding} of {machine.voters.ids}")

    # -- the end

    def heal(self, patience_ms: int = 4_000) -> None:
        """No more faults: within so long a leader is there, and everybody holds what it holds."""
        self.healed = True
        self.cuts.clear()
        self.delay = min(self.delay, 3.0)
        self.sync_delay = min(self.sync_delay, 5.0)
        for host in self.hosts.values():
            host.paused_until = min(host.paused_until, self.now)
            self.start_if_down(host)
        appended = False
        for _ in range(patience_ms // 100):
            self.run(100)
            if self.disagreement() is None:
                if appended:
                    return
                appended = True
                self.produce(self.leading()[0])
        raise Violation(f"healed, and {self.disagreement() or 'late'}")

    def leading(self) -> list[Host]:
        return [each for each in self.hosts.values() if each.machine is not None and each.machine.leads]

    def disagreement(self) -> str | None:
        """Why the members are not of one mind yet."""
        leading = self.leading()
        if len(leading) != 1:
            return f"{[each.node_id for each in leading]} lead"
        leader = leading[0]
        for host in self.hosts.values():
            machine = host.machine
            assert machine is not None and leader.machine is not None
            if (machine.epoch, machine.leader_id) != (leader.machine.epoch, leader.node_id):
                return f"node {host.node_id} follows {machine.leader_id} of {machine.epoch}"
            if host.log.entries != leader.log.entries:
                return f"node {host.node_id} has another log than its leader"
            if machine.high_watermark != leader.log.offset_end:
                return f"node {host.node_id} has {machine.high_watermark} of {leader.log.offset_end}"
            known = machine.voters.get(host.node_id)
            if self.changes_voters and machine.is_voter and known != host.voter:
                return f"node {host.node_id} is {host.voter}, and the voters have {known}"
        return None


def world_of(
    seed: int,
    simulation: type[QuorumSimulation] = QuorumSimulation,
    machine: type[QuorumMachine] = QuorumMachine,
) -> QuorumSimulation:
    """What sort of quorum a seed is about."""
    return simulation(
        seed,
        voters=(3, 1, 5, 2, 4, 3)[seed % 6],
        observers=(2, 1, 0)[seed % 3] + (seed % 6 == 1),
        configured=seed % 7 == 0,
        machine=machine,
    )
