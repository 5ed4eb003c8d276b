"""Control groups: what a worker takes, and why it does not"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connect.remote.own_cgroup import own_cgroup
from tidemill.connect.remote.cgroups import Cgroups, NoCgroups, TaskCgroup, cgroups
from tidemill.connect.task_limits import TaskLimits

MOUNT = "35 24 0:30 {root} {point} rw,nosuid - cgroup2 cgroup2 rw\n"


@pytest.fixture
def part() -> Iterator[Path]:
    with own_cgroup() as folder:
        yield folder


class Machine:
    """What a kernel would tell of control groups, as files."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.mount = folder / "proc", folder / "mount"
        (self.proc / "self").mkdir(parents=True)
        self.mount.mkdir()

    def tell(self, path: str = "/work", root: str = "/") -> None:
        (self.proc / "self" / "cgroup").write_text(f"4:memory:/elsewhere\n0::{path}\n")
        (self.proc / "self" / "mountinfo").write_text(MOUNT.format(root=root, point=self.mount))

    def group(self, path: str, *, controllers: str = "cpu io memory", procs: str = "", type: str = "domain") -> Path:
        folder = self.mount / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.procs").write_text(procs)
        if type:
            (folder / "cgroup.type").write_text(type)
        return folder


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_workers_own_group_is_taken_if_it_is_alone_in_it(machine: Machine) -> None:
    machine.tell("/services/worker")
    own = machine.group("services/worker", procs=f"{os.getpid()}\n")
    assert cgroups("auto", machine.proc).root == own


def test_a_container_sees_its_own_group_as_the_root_of_what_is_mounted(machine: Machine) -> None:
    machine.tell("/pods/7", root="/pods/7")
    own = machine.group(".", procs=f"{os.getpid()}\n")
    assert cgroups("auto", machine.proc).root == own


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ({"controllers": "io pids"}, "is not given the controllers cpu and memory"),
        ({"controllers": "cpu"}, "is not given the controllers memory"),
        ({"procs": "{me}\n12\n"}, "has other processes in it, such as 12"),
        ({"type": ""}, "in the root of the machine's control groups"),
    ],
)
def test_whose_group_is_not_its_own_takes_none_and_says_why(
    machine: Machine, group: dict[str, str], reason: str
) -> None:
    machine.tell()
    machine.group("work", **{name: value.replace("{me}", str(os.getpid())) for name, value in group.items()})
    with pytest.raises(NoCgroups, match=reason):
        cgroups("auto", machine.proc)


def test_where_there_is_nothing_of_the_kind_that_is_said(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(NoCgroups, match="the kernel tells of no control groups"):
        cgroups("auto", tmp_path / "nothing")
    machine.tell("/other", root="/pods/7")
    with pytest.raises(NoCgroups, match="not mounted where the worker could see its own group"):
        cgroups("auto", machine.proc)
    machine.tell()
    with pytest.raises(NoCgroups, match=r"tidemill\.task\.cgroup=none"):
        cgroups("none", machine.proc)
    with pytest.raises(NoCgroups, match="is no control group of cgroup v2"):
        cgroups(str(tmp_path), machine.proc)


def test_what_cannot_be_taken_is_given_back(machine: Machine) -> None:
    """Here nothing can: these are files that no kernel stands behind."""
    machine.tell()
    own = machine.group("work", procs=f"{os.getpid()}\n")
    before = sorted(own.iterdir())
    with pytest.raises(NoCgroups, match="cannot be used: No such file"), cgroups("auto", machine.proc):
        pass
    assert sorted(own.iterdir()) == before


# ------------------------------------------------------------ on a real kernel


def home() -> str:
    return next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))


def hoarding(mebibytes: int) -> subprocess.Popen[bytes]:
    """A process that waits to be told, then takes memory, by a child, and waits."""
    code = (
        "import subprocess, sys, time; sys.stdin.readline(); "
        f"subprocess.Popen([sys.executable, '-c', 'x = bytes(range(256)) * ({mebibytes} << 12); "
        "import time; time.sleep(600)']); time.sleep(600)"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)


def test_a_worker_comes_back_to_where_it_was(part: Path) -> None:
    before = home()
    with cgroups(str(part)) as taken:
        assert home() == f"0::/{part.name}/worker-{os.getpid()}"
        group = taken.new()
        group.limit(TaskLimits(cpu_cores=0.5, memory_bytes=100 << 20))
        assert (group.folder / "cpu.max").read_text() == "50000 100000\n"
        assert (group.folder / "memory.max").read_text() == f"{100 << 20}\n"
    assert home() == before
    assert not [each for each in part.iterdir() if each.is_dir()]


def test_all_of_a_group_that_wants_too_much_memory_is_ended(part: Path) -> None:
    with cgroups(str(part)) as taken:
        group = limited(taken, TaskLimits(memory_bytes=64 << 20))
        with hoarding(128) as process:
            group.add(process.pid)
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()
            assert process.wait(30) == -signal.SIGKILL, "the child alone has the memory"
        assert group.was_too_large
        taken.give_up(group)


def test_one_that_is_ended_by_others_was_not_too_large(part: Path) -> None:
    with cgroups(str(part)) as taken:
        group = limited(taken, TaskLimits(memory_bytes=64 << 20))
        with hoarding(1) as process:
            group.add(process.pid)
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()
            group.remove()
            assert process.wait(30) == -signal.SIGKILL
        assert not group.was_too_large
        taken.give_up(group)


def test_a_share_of_processors_is_kept(part: Path) -> None:
    with cgroups(str(part)) as taken:
        group = limited(taken, TaskLimits(cpu_cores=0.2))
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
            group.add(process.pid)
            began, used = time.monotonic(), used_s(group)
            time.sleep(2)
            share = (used_s(group) - used) / (time.monotonic() - began)
            process.kill()
        assert share < 0.3
        assert group.throttled_s > 0
        taken.give_up(group)


def test_what_a_killed_worker_has_left_goes_with_the_next(part: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    left = part / f"tasks-{process.pid}" / "1"
    left.mkdir(parents=True)
    (part / f"tasks-{os.getpid()}" / "1").mkdir(parents=True)  # in a container every worker has the same number
    with cgroups(str(part)) as taken:
        assert not left.parent.exists()
        assert taken.new().folder.name == "1"


OF_A_USER = """
import encodings.ascii  # which the other user may have no right to read
import os, sys
from tidemill.connect.remote.cgroups import cgroups
from tidemill.connect.task_limits import TaskLimits
unit = sys.argv[1]
with open(f"{unit}/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
os.setgid(65534)
os.setuid(65534)
with cgroups("auto") as taken:
    print(taken.root)
    group = taken.new()
    group.limit(TaskLimits(memory_bytes=100 << 20, cpu_cores=1.0))
    child = os.fork()
    if child == 0:
        sys.stdin.read()
        os._exit(0)
    group.add(child)
    print(open(f"/proc/{child}/cgroup").read().strip().splitlines()[-1].rpartition("/tasks-")[0])
    group.remove()
    print(os.waitpid(child, 0)[1])
print(open("/proc/self/cgroup").read().strip().splitlines()[-1])
"""


def test_a_worker_of_any_user_takes_the_group_that_was_given_to_it(part: Path) -> None:
    """As systemd does with `Delegate=` and `User=`."""
    (part / "cgroup.subtree_control").write_text("+cpu +memory")
    unit = part / "unit"
    unit.mkdir()
    for each in (unit, unit / "cgroup.procs", unit / "cgroup.subtree_control", unit / "cgroup.threads"):
        os.chown(each, 65534, 65534)
    command = [sys.executable, "-c", OF_A_USER, str(unit)]
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            told = process.stdout.read().splitlines()
        name = f"0::/{part.name}/unit"
        assert told == [str(unit), name, str(int(signal.SIGKILL)), name]
        assert not [each for each in unit.iterdir() if each.is_dir()]
    finally:
        unit.rmdir()


def limited(taken: Cgroups, limits: TaskLimits) -> TaskCgroup:
    group = taken.new()
    group.limit(limits)
    return group


def used_s(group: TaskCgroup) -> float:
    lines = (group.folder / "cpu.stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("usage_usec")) / 1e6
