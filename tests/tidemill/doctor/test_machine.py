"""The doctor's look at this machine: real facts, nothing left behind."""

import os
from pathlib import Path

from tidemill.doctor.judge import Level
from tidemill.doctor.machine import examine_folder, examine_machine, sync_latencies_ms


def test_every_fact_of_the_machine_is_judged() -> None:
    checks = [finding.check for finding in examine_machine(loopback=True)]
    assert checks == ["python", "uvloop", "open files", "memory maps", "congestion control"]


def test_a_folder_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    findings = examine_folder(tmp_path)
    assert [finding.check for finding in findings] == ["data folder", "disk space", "inodes", "sync latency"]
    assert "median of 50" in findings[-1].text
    assert list(tmp_path.iterdir()) == []
    latencies = sync_latencies_ms(tmp_path, 3)
    assert len(latencies) == 3
    assert min(latencies) > 0


def test_a_folder_that_is_not_there_is_judged_by_its_parent_and_not_made(tmp_path: Path) -> None:
    findings = examine_folder(tmp_path / "a" / "b")
    assert findings[0].level is Level.OK
    assert findings[0].text == f"{tmp_path / 'a' / 'b'} is not there yet and can be made in {tmp_path}"
    assert "log.dirs" in findings[0].advice
    assert str(tmp_path) in findings[1].text
    assert not (tmp_path / "a").exists()


def test_what_is_no_folder_or_cannot_be_written_fails(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    (finding,) = examine_folder(file)
    assert (finding.level, "not a folder" in finding.text) == (Level.FAIL, True)
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        (finding,) = examine_folder(tmp_path / "new")
        tmp_path.chmod(0o700)
        assert (finding.level, "cannot be made" in finding.text) == (Level.FAIL, True)
