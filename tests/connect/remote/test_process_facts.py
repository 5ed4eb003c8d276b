"""What the kernel tells about processes"""

import os
import sys
from pathlib import Path

import pytest

from tidemill.connect.remote import process_facts as facts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def test_this_process() -> None:
    before = facts.process_facts(os.getpid())
    assert before is not None
    ballast = bytes(64 << 20)
    sum(range(2_000_000))
    after = facts.process_facts(os.getpid())
    assert after is not None
    assert 1 << 20 < before.rss_bytes < 1 << 36
    assert after.rss_bytes >= before.rss_bytes
    assert after.cpu_s > 0
    assert len(ballast) == 64 << 20


def test_a_process_that_is_gone() -> None:
    assert facts.process_facts(2**22 + 1) is None


def test_a_name_full_of_traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command may be called anything, brackets and blanks included."""
    monkeypatch.setattr(facts, "_PROC", tmp_path)
    (tmp_path / "7").mkdir()
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "7" / "stat").write_text(f"7 (a) b (c) S 1 7 7 0 -1 0 0 0 0 0 {ticks * 2} {ticks} 0 0 20 0 1 0 0 0 0\n")
    (tmp_path / "7" / "statm").write_text("100 50 1 1 0 1 0\n")
    assert facts.process_facts(7) == facts.ProcessFacts(rss_bytes=50 * os.sysconf("SC_PAGE_SIZE"), cpu_s=3.0)
    (tmp_path / "vmstat").write_text("pgfault 1\noom_kill 4\n")
    assert facts.out_of_memory_kills() == 4
    (tmp_path / "vmstat").unlink()
    assert facts.out_of_memory_kills() == 0
