"""Hosts of one run: network namespaces around a switch that no other run can see

Every node has a namespace with one address, the clients have one, and the kit itself sits at the switch. The bridge is
in a namespace too, so nothing appears in the machine's own network, addresses cannot collide with those of another
run, and deleting the namespaces takes everything away.

A guardian process does that, whichever way the kit ends: it waits for the end of its standard input. What it could not
do (killed as well) the next run makes up for, since names tell which process they belonged to.
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

NAMESPACES = Path("/run/netns")
PREFIX = "tidemill-faults-"
NAMED = re.compile(rf"{PREFIX}(\d+)(?![^-])")
"""A run by the process it belongs to: the name of its folder, or how those of its namespaces begin."""
SWITCH, CLIENTS = "switch", "clients"
PROGRAMS = ("ip", "nsenter", "iptables", "tc", "mount", "mkfs.ext4", "fsfreeze")
CLONE_NEWNET = 0x40000000


class HostsError(RuntimeError):
    """A namespace, a rule or a disk cannot be made; says which command failed and how."""


def command(*words: str) -> str:
    """Run a program of the system; raises HostsError with what it said."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise HostsError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def missing() -> str | None:
    """None where hosts can be made, else why not and what to do."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"{', '.join(absent)} not found: apt-get install iproute2 iptables util-linux mount e2fsprogs"
    probe = f"{PREFIX}{os.getpid()}-probe"
    try:
        command("ip", "netns", "add", probe)
        command("ip", "netns", "delete", probe)
    except HostsError as error:
        return f"no network namespace can be made here ({error}); in a container it takes --privileged"
    return None


class Hosts:
    """The namespaces of one run, and what is wrong between them."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self.name = f"{PREFIX}{os.getpid()}"
        self.nodes = tuple(nodes)

    def make(self) -> None:
        """Every namespace, and a cable from each to the switch; the caller is at the switch from then on."""
        self._namespace(SWITCH)
        at_switch = self.inside(SWITCH)
        command(*at_switch, "ip", "link", "add", "bridge", "type", "bridge")
        command(*at_switch, "ip", "address", "add", f"{self.address(SWITCH)}/24", "dev", "bridge")
        command(*at_switch, "ip", "link", "set", "bridge", "up")
        for host in (*map(str, self.nodes), CLIENTS):
            self._namespace(host)
            there = f"to-{host}"
            peer = ("peer", "name", "eth0", "netns", f"{self.name}-{host}")
            command(*at_switch, "ip", "link", "add", there, "type", "veth", *peer)
            command(*at_switch, "ip", "link", "set", there, "master", "bridge", "up")
            command(*self.inside(host), "ip", "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            command(*self.inside(host), "ip", "link", "set", "eth0", "up")
        enter(f"{self.name}-{SWITCH}")

    def _namespace(self, host: str) -> None:
        command("ip", "netns", "add", f"{self.name}-{host}")
        command(*self.inside(host), "ip", "link", "set", "lo", "up")

    def inside(self, host: int | str) -> list[str]:
        """What is put before a command so that it runs there, in the same process id."""
        return ["nsenter", f"--net={NAMESPACES / f'{self.name}-{host}'}"]

    def address(self, host: int | str) -> str:
        """Where the others find it."""
        return f"10.77.0.{ {SWITCH: 254, CLIENTS: 100}.get(str(host)) or int(host) }"

    def cut(self, source: int | str, target: int | str) -> None:
        """From now on `target` hears nothing of `source`: what is under way as well, and nobody is told."""
        self._rule("-I", source, target, "-j", "DROP")

    def join(self, source: int | str, target: int | str) -> None:
        """The end of a `cut`."""
        self._rule("-D", source, target, "-j", "DROP")

    def _rule(self, action: str, source: int | str, target: int | str, *rest: str) -> None:
        rule = ("INPUT", "-s", self.address(source), *rest)
        command(*self.inside(target), "iptables", "-w", action, *rule)

    def lose(self, host: int, share: float) -> None:
        """That share of the packets that come to the host is lost."""
        command(*self.inside(host), "iptables", "-w", "-A", "INPUT", *loss(share))

    def lose_no_more(self, host: int, share: float) -> None:
        """The end of a `lose`."""
        command(*self.inside(host), "iptables", "-w", "-D", "INPUT", *loss(share))

    def slow(self, host: int, kbit_s: int) -> None:
        """What the host sends goes through a thin pipe with a queue."""
        shaped = ("tbf", "rate", f"{kbit_s}kbit", "burst", "16kb", "latency", "500ms")
        command(*self.inside(host), "tc", "qdisc", "replace", "dev", "eth0", "root", *shaped)

    def fast(self, host: int) -> None:
        """The end of a `slow`."""
        command(*self.inside(host), "tc", "qdisc", "delete", "dev", "eth0", "root")


def loss(share: float) -> tuple[str, ...]:
    """A rule's words."""
    return ("-m", "statistic", "--mode", "random", "--probability", f"{share:.3f}", "-j", "DROP")


def enter(namespace: str) -> None:
    """The calling thread, and all it starts, are in that namespace from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(NAMESPACES / namespace, os.O_RDONLY)
    try:
        if libc.setns(handle, CLONE_NEWNET) != 0:
            raise HostsError(f"{namespace} cannot be entered: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(handle)


def namespaces(run: str) -> list[str]:
    """Those of a run that are there."""
    return sorted(path.name for path in NAMESPACES.glob(f"{run}-*")) if NAMESPACES.is_dir() else []


def mounted() -> list[str]:
    """Where anything is."""
    return [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]


def mounts(run: str) -> list[str]:
    """The disks of a run that are mounted."""
    return [target for target in mounted() if run in Path(target).parts]


def remove(run: str) -> None:
    """End whoever lives in the namespaces of a run (the kit at its switch left out), and take all of it away.

    What cannot be taken away keeps nothing else; HostsError names it in the end.
    """
    found = namespaces(run)
    living = [namespace for namespace in found if not namespace.endswith(SWITCH)]
    for _ in range(50):
        for disk in mounts(run):  # nobody can be killed who waits for a disk that stands still, or is about to
            attempt("fsfreeze", "-u", disk)
        inhabitants = [int(pid) for namespace in living for pid in attempt("ip", "netns", "pids", namespace).split()]
        if not inhabitants:
            break
        kill(inhabitants)
        time.sleep(0.1)
    for disk in mounts(run):
        attempt("umount", "--lazy", disk)
    for namespace in found:
        attempt("ip", "netns", "delete", namespace)
    if left := [*mounts(run), *namespaces(run)]:
        raise HostsError(f"these are still there, take them away by hand: {', '.join(left)}")


def attempt(*words: str) -> str:
    """Run a program of the system, whatever comes of it; what it said on its standard output."""
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout


def kill(pids: Iterable[int]) -> None:
    """End them the hard way; who is gone is gone."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def runs(spaces: Iterable[str], targets: Iterable[str]) -> dict[str, int]:
    """Those that these namespaces and mounted disks are of, and the process of each.

    A run that ended early has disks and no namespace yet, or no longer.
    """
    names = [*spaces, *(Path(target).parent.name for target in targets)]
    found = [NAMED.match(name) for name in names]
    return {each[0]: int(each[1]) for each in found if each is not None}


def remove_orphans() -> None:
    """What runs have left behind that ended together with their guardian."""
    for run, process in runs(namespaces(PREFIX.removesuffix("-")), mounted()).items():
        if not Path(f"/proc/{process}").exists():
            remove(run)


def guardian(run: str) -> subprocess.Popen[bytes]:
    """A process that removes everything when its standard input ends; not reached by a Ctrl-C."""
    root = Path(__file__).resolve().parent.parent.parent
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.hosts", run], stdin=subprocess.PIPE, cwd=root, start_new_session=True
    )


if __name__ == "__main__":
    sys.stdin.read()
    remove(sys.argv[1])
