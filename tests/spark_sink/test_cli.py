"""`tidemill spark`: exit statuses and messages, as processes"""

import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.spark_sink.cli import check_file, load
from tidemill.spark_sink.core_api import ConfigError

GOOD = "bootstrap.servers=127.0.0.1:1\ntopics=t\n"


def spark(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tidemill.cli", "spark", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_wrong_file_is_refused_with_every_reason(tmp_path: Path) -> None:
    file = tmp_path / "job.properties"
    file.write_text("topics=t\nmode=merge\n")
    for command in ("run", "check"):
        done = spark(command, str(file))
        assert done.returncode == 2
        lines = done.stderr.splitlines()
        assert all(line.startswith("tidemill spark: ") for line in lines)
        assert len(lines) == 3  # bootstrap.servers, table.path, mode


def test_a_file_that_is_not_there() -> None:
    done = spark("run", "/nowhere/job.properties")
    assert (done.returncode, done.stderr) == (
        2,
        "tidemill spark: /nowhere/job.properties: cannot be read: No such file or directory\n",
    )


def test_a_table_path_that_cannot_be() -> None:
    problems = check_file(Path("/proc/self/mem"))
    assert len(problems) == 1


@pytest.mark.java
def test_check_says_nothing_when_all_is_well(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f'"bootstrap.servers" = "127.0.0.1:1"\ntopics = ["t"]\n[table]\npath = "{tmp_path}/table"\n')
    done = spark("check", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    file.write_text(file.read_text().replace(f"{tmp_path}/table", "/proc/x/table"))
    done = spark("check", str(file))
    assert done.returncode == 2
    assert done.stderr.startswith("tidemill spark: table.path '/proc/x/table' cannot be used")


def test_a_supervisor_that_is_gone_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "job.properties"
    file.write_text(GOOD + f"table.path={tmp_path}/t\n")
    done = spark("run", "--parent", "1234567", str(file))
    assert done.returncode == 1
    assert "the supervising process 1234567 is gone" in done.stderr


def test_settings_are_documented() -> None:
    done = spark("settings")
    assert done.returncode == 0
    assert "| `table.path` |" in done.stdout


def test_toml_and_properties_mean_the_same(tmp_path: Path) -> None:
    properties, toml = tmp_path / "a.properties", tmp_path / "a.toml"
    properties.write_text(GOOD + "table.path=/t\nspark.executor.memory=1g\n")
    toml.write_text(
        '"bootstrap.servers" = "127.0.0.1:1"\ntopics = "t"\ntable.path = "/t"\nspark.executor.memory = "1g"\n'
    )
    assert load(properties) == load(toml)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
