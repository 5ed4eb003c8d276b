"""Folders of runs"""

import fcntl
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


def test_a_folder_that_somebody_holds_stays_though_its_process_is_not_seen(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    elsewhere = tmp_path / f"tidemill-spark-{gone.pid}-abc"  # as of a run in another container
    elsewhere.mkdir()
    descriptor = os.open(elsewhere, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    sweep(tmp_path)
    assert elsewhere.exists()
    os.close(descriptor)
    sweep(tmp_path)
    assert not elsewhere.exists()


def test_a_run_holds_its_folder_and_what_it_starts_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_folder() as folder:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
        look = ["sh", "-c", "ls -l /proc/$$/fd"]
        said = subprocess.run(look, capture_output=True, text=True, check=True, close_fds=False)
        assert str(folder) not in said.stdout


def test_a_link_to_a_folder_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (tmp_path / f"tidemill-spark-{gone.pid}-abc").symlink_to(precious)
    sweep(tmp_path)
    assert (precious / "file").exists()
