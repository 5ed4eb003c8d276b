"""A cluster in network namespaces that is broken in every way the kit knows, and rolled over to this commit's code

Short runs of `python -m tests.faults`; what it says is in the report of a failed test.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers
from tests.faults import clocks, hosts

pytestmark = [pytest.mark.integration, pytest.mark.crash, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def _hosts() -> None:
    if reason := hosts.missing():
        pytest.skip(f"hosts cannot be made here: {reason}")


def kit(folder: Path, *words: str) -> dict[str, Any]:
    """The report of one run."""
    java = [] if peers.available() is None else ["--no-java"]
    command = [sys.executable, "-m", "tests.faults", "--folder", str(folder), *java, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=380, check=False)
    assert done.stdout, done.stderr[-4000:]
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["passed"], f"{json.dumps(report, indent=1)}\n{done.stderr[-4000:]}"
    return report


def test_every_kind_of_fault_once_and_nothing_is_lost(tmp_path: Path) -> None:
    report = kit(tmp_path, "--mode", "each", "--seed", "11")
    assert report["counts"]["acknowledged"] > 1000
    assert set(report["gaps"]) >= {"kill", "pause", "restart", "cut-off", "one-way", "full-disk", "stalled-disk"}
    assert "clock" in report["gaps"] or clocks.missing()
    assert hosts.namespaces(Path(report["folder"]).name) == []


def test_a_rolling_upgrade_from_the_commit_before_is_no_error_for_anybody(tmp_path: Path) -> None:
    before = subprocess.run(["git", "rev-parse", "HEAD~1"], cwd=ROOT, capture_output=True, text=True, check=False)
    if before.returncode != 0:
        pytest.skip("the commit before is not here: the clone is shallow")
    report = kit(tmp_path, "--mode", "upgrade", "--from", before.stdout.strip())
    assert report["faults"] == 3
    assert report["counts"].get("failed", 0) == 0
