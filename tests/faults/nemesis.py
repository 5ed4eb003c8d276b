"""Carries a plan out: breaks, puts back, and writes down when

One thread does it all, in the order of time. Nothing here waits for a node to be well: a node that was killed is
started again and left to itself, so that the next fault may meet it half way. How long a start took is written down;
only at the end that is waited for. Whoever has ended without being told to is started again too, and that is written
down.
"""

import signal
import time
from collections.abc import Callable, Sequence

from tests.faults.gaps import START_MAX_S, Broken
from tests.faults.hosts import CLIENTS, Hosts
from tests.faults.nodes import Node, Nodes
from tests.faults.plan import Fault

CLOCK_STEP_MAX_S = 40 * 60.0
"""Less than an hour: records stamped by clients further in a broker's future are refused by both."""
THICK_KBIT_S, THIN_KBIT_S = 2048, 192
LOSS_MAX = 0.25
REST_S = 0.05
HALT_S = 3.0
"""A machine that was halted for so long, clients and all, is a fault of its own, and the plan goes on behind it."""


class Nemesis:
    """What is broken at the moment, and what was."""

    def __init__(self, hosts: Hosts, nodes: Nodes, say: Callable[[str], None]) -> None:
        self._hosts = hosts
        self._nodes = nodes.by_number
        self._say = say
        self._down: set[int] = set()
        self._starting: dict[int, float] = {}  # since when; not of those that have ended by themselves
        self.starts: list[Broken] = []
        self.done: list[Broken] = []
        self.ended_by_themselves: list[str] = []
        self.killed_at_stop: list[str] = []

    def carry_out(self, plan: Sequence[Fault]) -> None:
        """All of it; returns when everything is put back and has started, or has had the time for it."""
        began = time.monotonic()
        waiting = sorted(plan, key=lambda each: each.at)
        broken: list[tuple[float, float, Fault, Callable[[], None]]] = []
        while waiting or broken or self._starting:
            now = time.monotonic() - began
            over = min(broken, key=lambda each: each[0], default=None)
            if over is not None and over[0] <= now:
                broken.remove(over)
                self._put_back(over, began)
            elif waiting and waiting[0].at <= now and not self._harmed(broken, waiting[0]):
                fault = waiting.pop(0)
                self._say(f"{now:7.1f} s: {fault.kind} {fault.nodes} for {fault.seconds} s")
                begin = time.monotonic()
                put_back = self._break(fault)
                broken.append((time.monotonic() - began + fault.seconds, begin, fault, put_back))
            else:
                self.revive()
                self._look_at_starts()
                began += self._rest()
        self.revive()

    def _rest(self) -> float:
        """A moment; returns by how much longer it was than it should be, if the whole machine stood still."""
        begin = time.monotonic()
        time.sleep(REST_S)
        late_s = time.monotonic() - begin - REST_S
        if late_s < HALT_S:
            return 0.0
        self._say(f"everything stood still for {late_s:.1f} s")
        self.done.append(Broken(kind="halt", nodes=(), begin=begin, end=time.monotonic()))
        return late_s

    def _harmed(self, broken: Sequence[tuple[float, float, Fault, Callable[[], None]]], fault: Fault) -> bool:
        """Whether one of its nodes is: ending in order takes a node some seconds that are in no plan."""
        return any(set(fault.nodes) & set(other.nodes) for _, _, other, _ in broken)

    def _put_back(self, over: tuple[float, float, Fault, Callable[[], None]], began: float) -> None:
        _, begin, fault, put_back = over
        put_back()
        end = time.monotonic()
        self._say(f"{end - began:7.1f} s: {fault.kind} {fault.nodes} is over")
        self.done.append(Broken(kind=fault.kind, nodes=fault.nodes, begin=begin, end=end))

    def _look_at_starts(self) -> None:
        for number, begin in list(self._starting.items()):
            if self._nodes[number].has_started or time.monotonic() - begin >= START_MAX_S:
                self._end_start(number)

    def _end_start(self, number: int) -> None:
        """It has started, or is not let: by another fault, or because its time is over."""
        begin = self._starting.pop(number, None)
        if begin is not None:
            self.starts.append(Broken(kind="start", nodes=(number,), begin=begin, end=time.monotonic()))

    def revive(self) -> None:
        """Start whoever should live and does not."""
        for number, node in self._nodes.items():
            if number not in self._down and not node.running:
                self.ended_by_themselves.append(f"node {number} at {time.monotonic():.1f}")
                self._say(f"node {number} has ended by itself: started again")
                node.begin()

    def _break(self, fault: Fault) -> Callable[[], None]:
        """Do it; returns what puts it back."""
        node = self._nodes[fault.nodes[0]]
        match fault.kind:
            case "kill" | "blackout":
                return self._kill([self._nodes[number] for number in fault.nodes])
            case "restart":
                return self._restart(node)
            case "pause":
                node.signal(signal.SIGSTOP)
                return lambda: node.signal(signal.SIGCONT)
            case "full-disk":
                node.disk.fill()
                return node.disk.empty
            case "stalled-disk":
                node.disk.freeze()
                return node.disk.thaw
            case "clock":
                return self._step_clock(node, fault)
            case "slow":
                self._hosts.slow(node.number, round(THIN_KBIT_S + fault.amount * (THICK_KBIT_S - THIN_KBIT_S)))
                return lambda: self._hosts.fast(node.number)
            case "lossy":
                share = 0.02 + fault.amount * LOSS_MAX
                self._hosts.lose(node.number, share)
                return lambda: self._hosts.lose_no_more(node.number, share)
        return self._cut(fault)

    def _kill(self, victims: Sequence[Node]) -> Callable[[], None]:
        for node in victims:
            self._down.add(node.number)
            self._end_start(node.number)
            node.kill()
        return lambda: self._start(victims)

    def _restart(self, node: Node) -> Callable[[], None]:
        self._down.add(node.number)
        self._end_start(node.number)
        if not node.stop():
            self.killed_at_stop.append(f"node {node.number}")
        return lambda: self._start([node])

    def _start(self, victims: Sequence[Node]) -> None:
        for node in victims:
            self._down.discard(node.number)
            node.begin()
            self._starting[node.number] = time.monotonic()

    def _step_clock(self, node: Node, fault: Fault) -> Callable[[], None]:
        clock = node.clock
        assert clock is not None
        clock.step((fault.amount * 2 - 1) * CLOCK_STEP_MAX_S)
        return lambda: clock.step(0)

    def _cut(self, fault: Fault) -> Callable[[], None]:
        cuts = cuts_of(fault, self._hosts.nodes)
        for source, target in cuts:
            self._hosts.cut(source, target)

        def join() -> None:
            for source, target in cuts:
                self._hosts.join(source, target)

        return join


def cuts_of(fault: Fault, nodes: Sequence[int]) -> list[tuple[int | str, int | str]]:
    """Who is not heard by whom."""
    one, *rest = fault.nodes
    others: list[int | str] = [number for number in nodes if number != one]
    inward = [(other, one) for other in (*others, CLIENTS)]
    outward = [(one, other) for other in (*others, CLIENTS)]
    match fault.kind:
        case "cut-off":
            return [*inward, *outward]
        case "deaf":
            return [*inward]
        case "mute":
            return [*outward]
        case "split":
            return [(one, rest[0]), (rest[0], one)]
        case "one-way":
            return [(one, rest[0])]
        case "unseen":
            return [(CLIENTS, one), (one, CLIENTS)]
    raise ValueError(f"no such fault: {fault.kind}")
