"""`tidemill spark`: exit statuses and messages, as processes"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from tests.spark_sink.conftest import Topics
from tests.spark_sink.debezium_events import Message
from tidemill.spark_sink.cli import check_file, load
from tidemill.spark_sink.cluster import Cluster
from tidemill.spark_sink.core_api import ConfigError
from tidemill.spark_sink.options import Selection, parse_options
from tidemill.spark_sink.tables.delta import DeltaTarget

GOOD = "bootstrap.servers=127.0.0.1:1\ntopics=t\n"


def spark(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    command, variables = [sys.executable, "-m", "tidemill.cli", "spark", *arguments], {**os.environ, **environ}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=variables)


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
        "tidemill spark: cannot read /nowhere/job.properties: No such file or directory\n",
    )


def test_settings_come_from_the_environment_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "job.properties"
    file.write_text(f"{GOOD}table.path=/from/file\nmode=upsert\n")
    monkeypatch.setenv("TIDEMILL_SPARK_TABLE_PATH", "/from/environment")
    monkeypatch.setenv("TIDEMILL_SPARK_MODE", "upsert")
    monkeypatch.setenv("TIDEMILL_SPARK_PROPERTIES", "spark.executor.memoryOverhead=1g\nkafka.client.rack=a")
    config = load(file, ["mode=append"])
    assert (config.topics, config.table_path, config.mode) == (("t",), "/from/environment", "append")
    assert config.spark == {"spark.executor.memoryOverhead": "1g"}
    assert config.kafka == {"kafka.client.rack": "a"}
    monkeypatch.setenv("TIDEMILL_SPARK_TOPICS", "u")
    monkeypatch.setenv("TIDEMILL_SPARK_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert load(None).topics == ("u",)


def test_a_wrong_variable_is_refused_by_name() -> None:
    done = spark("run", TIDEMILL_SPARK_TABLE="/t")
    assert (done.returncode, done.stderr) == (
        2,
        "tidemill spark: Unknown variable TIDEMILL_SPARK_TABLE: "
        "a setting without a variable of its own is a line of TIDEMILL_SPARK_PROPERTIES\n",
    )
    done = spark("run", TIDEMILL_SPARK_TABLE_PATH="/t")
    assert [line.split("'")[0] for line in done.stderr.splitlines()] == [
        "tidemill spark: TIDEMILL_SPARK_*: Missing required configuration "
    ] * 2


def test_a_table_path_that_cannot_be() -> None:
    problems = check_file(Path("/proc/self/mem"))
    assert len(problems) == 1


@pytest.mark.java
def test_an_offline_check_leaves_the_cluster_alone(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f'"bootstrap.servers" = "127.0.0.1:1"\ntopics = ["t"]\n[table]\npath = "{tmp_path}/table"\n')
    done = spark("check", "--offline", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"settings  {file}\n", "")
    file.write_text(file.read_text().replace(f"{tmp_path}/table", "/proc/x/table"))
    done = spark("check", str(file))
    assert done.returncode == 2
    assert done.stderr.startswith("tidemill spark: table.path '/proc/x/table' cannot be used")


@pytest.mark.java
@pytest.mark.integration
def test_a_check_says_what_it_found(topics: Topics, tmp_path: Path) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, [[Message(b"k", b"v")] * 3, [Message(b"k", b"v")]])
    file, table = tmp_path / "job.properties", tmp_path / "table"
    settings = f"bootstrap.servers={topics.bootstrap}\ntable.path={table}\n"
    file.write_text(f"{settings}topics={name}\n")
    done = spark("check", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    *_, topic, found = done.stdout.splitlines()
    assert topic == f"topic     {name} at {topics.bootstrap}: 2 partitions, 4 offsets"
    assert found == f"table     {table}: does not exist yet, the job makes it"
    DeltaTable.create(str(table), Schema.from_arrow(pa.schema([("id", pa.int64())])))
    assert (
        f"{table}: version 0, 1 columns, nothing from a job named 'warehouse' yet" in spark("check", str(file)).stdout
    )
    ids = Cluster(parse_options({"kafka.bootstrap.servers": topics.bootstrap, "subscribe": name}, streaming=True))
    known = ids.partitions(Selection(subscribe=(name,)))
    DeltaTarget(str(table), "warehouse").begin(dict.fromkeys(known.offsets, 1), known.topic_ids)
    assert "version 1, 1 columns, job 'warehouse' is 2 offsets behind" in spark("check", str(file)).stdout
    file.write_text(f"{settings}topics=no-such-topic\n")
    done = spark("check", str(file))
    assert (done.returncode, done.stderr) == (
        1,
        f"tidemill spark: topic 'no-such-topic' does not exist at {topics.bootstrap}\n",
    )
    file.write_text(f"bootstrap.servers=127.0.0.1:1\ntable.path={table}\ntopics={name}\n")
    done = spark("check", str(file))
    assert done.returncode == 1
    assert "tidemill spark: 127.0.0.1:1: the cluster does not answer: " in done.stderr
    assert "Connection refused" in done.stderr


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
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path)


def test_an_address_that_cannot_be_served_ends_it_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "job.properties"
    least = f"bootstrap.servers=127.0.0.1:1\ntopics=t\ntable.path={tmp_path / 'table'}\n"
    file.write_text(f"{least}metrics.listener=nowhere\n")
    done = spark("run", str(file))
    assert done.returncode == 2
    assert "metrics.listener: expected HOST:PORT" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        file.write_text(f"{least}metrics.listener={address}\n")
        done = spark("run", str(file))
    assert done.returncode == 2
    *_, line = done.stderr.splitlines()
    assert line == f"tidemill spark: metrics.listener {address}: Address already in use; choose another address"
