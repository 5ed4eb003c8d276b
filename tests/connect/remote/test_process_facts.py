"""What the kernel tells about processes"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.connect.remote import process_facts as facts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

PAGE = os.sysconf("SC_PAGE_SIZE")


def family(table: facts.ProcessTable, root: int) -> facts.FamilyFacts | None:
    return facts.family_facts(table, facts.children_of(table), root)


def test_this_process() -> None:
    before = facts.process_table()[os.getpid()]
    ballast = b"x" * (64 << 20)
    sum(range(2_000_000))
    after = facts.process_table()[os.getpid()]
    assert 1 << 20 < before.rss_bytes < 1 << 36
    assert after.rss_bytes >= before.rss_bytes
    assert after.parent == os.getppid()
    assert after.cpu_s > 0
    assert len(ballast) == 64 << 20


def test_a_process_that_is_gone() -> None:
    assert family(facts.process_table(), 2**22 + 1) is None


def test_children_count() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = family(facts.process_table(), os.getpid())
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
        table = facts.process_table()
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
    assert facts.process_table(tmp_path) == {7: facts.ProcessEntry(1, 50 * PAGE, 3.0)}
    (tmp_path / "vmstat").write_text("pgfault 1\noom_kill 4\n")
    assert facts.out_of_memory_kills(tmp_path) == 4
    (tmp_path / "vmstat").unlink()
    assert facts.out_of_memory_kills(tmp_path) == 0
    assert facts.process_table(tmp_path / "nothing") == {}
