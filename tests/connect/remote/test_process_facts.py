"""What the kernel tells about processes"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.connect.remote import process_facts as facts
from tidemill.core.runtime.clock import ManualClock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

PAGE = os.sysconf("SC_PAGE_SIZE")


def family(table: facts.ProcessTable, root: int) -> facts.FamilyFacts | None:
    return facts.family_facts(table, facts.children_of(table), root)


def test_this_process() -> None:
    before = facts.Census().look()[os.getpid()]
    ballast = b"x" * (64 << 20)
    sum(range(2_000_000))
    after = facts.Census().look()[os.getpid()]
    assert 1 << 20 < before.rss_bytes < 1 << 36
    assert after.rss_bytes >= before.rss_bytes
    assert after.parent == os.getppid()
    assert after.cpu_s > 0
    assert len(ballast) == 64 << 20


def test_a_process_that_is_gone() -> None:
    assert family(facts.Census().look(), 2**22 + 1) is None


def test_children_count() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = family(facts.Census().look(), os.getpid())
        assert found is not None and {os.getpid(), child.pid} <= set(found.pids)
        child.communicate()


def test_a_family_is_all_that_descends() -> None:
    table = {
        1: facts.ProcessEntry(0, 1_000, 1.0),
        5: facts.ProcessEntry(1, 10, 0.5),
        6: facts.ProcessEntry(5, 20, 0.25),
        7: facts.ProcessEntry(6, 30, 0.25),
        8: facts.ProcessEntry(1, 5_000, 9.0),
    }
    assert family(table, 5) == facts.FamilyFacts(pids=(5, 6, 7), rss_bytes=60, cpu_s=1.0)


def test_shared_pages_count_once() -> None:
    ballast = b"x" * (64 << 20)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    try:
        table = facts.Census().look()
        both = facts.proportional_bytes((os.getpid(), child))
        if both is None:
            pytest.skip("this kernel does not tell")
        resident = table[os.getpid()].rss_bytes + table[child].rss_bytes
        assert both < resident - len(ballast) // 2
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)
    assert facts.proportional_bytes((2**22 + 1,)) in (0, None)


def test_a_process_that_is_gone_meanwhile_uses_nothing(tmp_path: Path) -> None:
    """Only where nothing is told of anybody does the sum of resident pages have to do."""
    assert facts.proportional_bytes((7, 8), tmp_path) is None
    for name in ("self", "7"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "smaps_rollup").write_text("Rss: 90 kB\nPss: 40 kB\n")
    assert facts.proportional_bytes((7, 8), tmp_path) == 40 * 1024
    assert facts.proportional_bytes((8,), tmp_path) == 0


def test_a_name_full_of_traps(tmp_path: Path) -> None:
    """A command may be called anything, brackets and blanks included."""
    (tmp_path / "7").mkdir()
    (tmp_path / "8").mkdir()  # gone between two looks
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "7" / "stat").write_text(
        f"7 (a) b (c) S 1 7 7 0 -1 0 0 0 0 0 {ticks * 2} {ticks} 0 0 20 0 1 0 0 0 50 0\n"
    )
    assert facts.Census(proc=tmp_path).look() == {7: facts.ProcessEntry(1, 50 * PAGE, 3.0)}
    (tmp_path / "vmstat").write_text("pgfault 1\noom_kill 4\n")
    assert facts.out_of_memory_kills(tmp_path) == 4
    (tmp_path / "vmstat").unlink()
    assert facts.out_of_memory_kills(tmp_path) == 0
    assert facts.Census(proc=tmp_path / "nothing").look() == {}


class Told:
    """A /proc in a folder: who there is, and whose child."""

    def __init__(self, folder: Path, **parents: int) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.census = facts.Census(10, folder, clock=self.clock)
        for name, parent in parents.items():
            self.begins(int(name[1:]), parent)

    def begins(self, pid: int, parent: int) -> None:
        (self.folder / str(pid)).mkdir(exist_ok=True)
        (self.folder / str(pid) / "stat").write_text(
            f"{pid} (p) S {parent} 0 0 0 0 0 0 0 0 0 1 1 0 0 20 0 1 0 0 0 5 0\n"
        )

    def ends(self, pid: int) -> None:
        (self.folder / str(pid) / "stat").unlink()
        (self.folder / str(pid)).rmdir()

    def look(self) -> set[int]:
        return set(self.census.look())


def test_who_is_not_below_a_process_is_looked_at_once(tmp_path: Path) -> None:
    told = Told(tmp_path, p1=0, p2=0, p5=1, p10=5, p11=10, p12=11, p20=5, p21=20)
    assert told.look() == {1, 2, 5, 10, 11, 12, 20, 21}
    assert told.look() == {10, 11, 12}
    told.begins(13, 12)
    told.begins(22, 21)
    assert told.look() == {10, 11, 12, 13, 22}
    told.ends(12)
    told.begins(13, 11)  # its grandparent takes it in
    assert told.look() == {10, 11, 13}


def test_a_number_that_is_given_anew_is_another_process(tmp_path: Path) -> None:
    told = Told(tmp_path, p1=0, p10=1, p20=1, p21=1)
    told.look()
    told.ends(20)
    assert told.look() == {10}
    told.begins(20, 10)
    told.begins(21, 10)  # in between two looks
    assert told.look() == {10, 20}
    assert any(21 in told.look() for _ in range(facts.LOOKS_AT_ALL))


def test_whoever_has_not_looked_for_long_passes_over_nobody(tmp_path: Path) -> None:
    """As a worker that had no task: numbers of strangers have been given to others meanwhile."""
    told = Told(tmp_path, p1=0, p10=1, p20=1)
    told.look()
    told.begins(20, 10)
    told.clock.advance(1_000 * facts.LOOKS_APART_S)
    assert told.look() == {10}
    told.clock.advance(1_000 * facts.LOOKS_APART_S + 1)
    assert told.look() == {1, 10, 20}
    assert told.look() == {10, 20}


def test_who_is_not_known_to_be_a_stranger_is_none(tmp_path: Path) -> None:
    told = Told(tmp_path, p1=0, p10=1, p31=30)
    assert told.look() == {1, 10, 31}
    assert told.look() == {10, 31}
    told.begins(30, 10)
    assert told.look() == {10, 30, 31}
    told.begins(30, 31)  # nothing is as it was when the next is read
    assert told.look() == {10, 30, 31}


def test_this_process_and_what_it_starts() -> None:
    census = facts.Census()
    assert os.getppid() in census.look()
    assert os.getppid() not in census.look()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        table = census.look()
        found = family(table, os.getpid())
        assert found is not None and child.pid in found.pids
        child.communicate()
