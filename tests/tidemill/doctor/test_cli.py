"""`tidemill doctor` as people run it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidemill.services import Service

pytestmark = pytest.mark.integration


def doctor(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tidemill.cli", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_broker_that_answers_is_reported_in_lines_and_in_json(tidemill_broker: "Service", tmp_path: Path) -> None:
    address = tidemill_broker.facts["address"]
    (tmp_path / "meta.properties").touch()
    (tmp_path / "cleaner-failures.json").touch()
    done = doctor("--bootstrap-server", address, "--data", str(tmp_path), "--json")
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    by_check = {finding["check"]: finding["level"] for finding in findings}
    assert by_check["bootstrap"] == by_check["advertised address of node 1"] == by_check["data folder"] == "ok"
    assert by_check["log cleaner"] == "warn"
    assert done.returncode == (1 if "fail" in by_check.values() else 0)
    text = doctor("--bootstrap-server", address).stdout
    assert f"ok   bootstrap: {address} answers in" in text
    assert "sync latency" not in text


def test_nobody_at_the_address_fails_with_advice() -> None:
    done = doctor("--bootstrap-server", "127.0.0.1:1")
    assert done.returncode == 1
    assert "fail bootstrap: 127.0.0.1:1" in done.stdout
    assert "tidemill broker start" in done.stdout


def test_an_address_that_is_none_is_wrong_usage() -> None:
    done = doctor("--bootstrap-server", "nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tidemill doctor: expected host:port, got 'nonsense'\n"
