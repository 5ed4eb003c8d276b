"""Folders of runs"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.spark_sink.scratch import scratch_folder, sweep


def test_a_run_removes_its_folder_and_those_of_dead_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    dead, living = tmp_path / f"tidemill-spark-{gone.pid}-abc", tmp_path / f"tidemill-spark-{os.getppid()}-abc"
    other = tmp_path / "tidemill-spark-check-1"
    for each in (dead, living, other):
        each.mkdir()
    (dead / "file").write_text("x")
    with scratch_folder() as folder:
        (folder / "deep").mkdir()
        assert f"-{os.getpid()}-" in folder.name
        assert sorted(each.name for each in tmp_path.iterdir()) == sorted([folder.name, living.name, other.name])
    assert not folder.exists()
    sweep(tmp_path)
    assert living.exists()
