"""`tidemill cluster` as one types it, at three real nodes"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidemill.cluster.cli import app
from tidemill.free_ports import free_port, free_ports
from tidemill.services import Cluster


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_files_of_a_new_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    done = run("init", str(folder), "one", "two", "three", "--log-dirs", "/data")
    assert done.exit_code == 0, done.output
    assert sorted(each.name for each in folder.iterdir()) == [f"node-{node}.properties" for node in (1, 2, 3)]
    assert "3 brokers, 3 of them controllers; 1 of these may be away" in done.stdout
    before = (folder / "node-1.properties").read_text()
    again = run("init", str(folder), "one", "two", "three")
    assert again.exit_code == 1
    assert "is there already" in again.stderr
    assert (folder / "node-1.properties").read_text() == before


def test_the_files_of_a_cluster_with_controllers_that_come_and_go(tmp_path: Path) -> None:
    apart = ("--controller", "c", "--controller", "d", "--controller", "e")
    done = run("init", str(tmp_path), "one", *apart, "--dynamic")
    assert done.exit_code == 0, done.output
    assert "1 brokers, 3 controllers; 1 of these may be away" in done.stdout
    told = [line for line in done.stdout.splitlines() if line.startswith("tidemill broker format")]
    assert len(told) == 3
    assert len({line.partition("--initial-controllers ")[2] for line in told}) == 1
    assert "process.roles=controller\n" in (tmp_path / "node-2.properties").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("add-voter", "4"), "'4' is not ID@HOST:PORT, as in 4@four:9093"),
        (("add-voter", "x@h:1"), "'x@h:1' is not ID@HOST:PORT"),
        (("remove-voter", "4", "--directory", "!"), "--directory: "),
    ],
)
def test_voters_that_are_not_named_as_they_must_be(arguments: tuple[str, ...], told: str) -> None:
    done = run(*arguments, "-b", "127.0.0.1:1")
    assert done.exit_code == 2
    assert told in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("one",), "3 controllers or more"),
        (("one", "two:9092", "three"), "'two:9092' is no host name"),
        (("a", "a", "b", "--controller-port", "9094"), "a:9094 would be taken twice"),
    ],
)
def test_files_that_would_be_no_cluster_are_not_written(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    done = run("init", str(tmp_path / "new"), *arguments)
    assert done.exit_code == 2
    assert told in done.stderr
    assert not (tmp_path / "new").exists()


def test_nobody_there_is_a_sentence() -> None:
    port = free_port()
    done = run("status", "-b", f"127.0.0.1:{port}")
    assert done.exit_code == 1
    assert f"no broker answers at 127.0.0.1:{port}" in done.stderr
    assert run("status", "-b", "nonsense:port").exit_code == 2


@pytest.mark.integration
def test_a_cluster_that_is_well_and_one_that_lacks_a_node(tmp_path: Path) -> None:
    cluster = Cluster("told", tmp_path, free_ports(6)).start()
    try:
        from tidemill.topic_cli import app as topics

        made = CliRunner().invoke(topics, ["create", "t", "--partitions", "3", "-b", cluster.bootstrap])
        assert made.exit_code == 0, made.output
        well = run("status", "-b", cluster.bootstrap)
        assert well.exit_code == 0, well.output
        assert well.stdout.count("running") == 3
        assert well.stdout.count("leader") == 1
        assert "each with all its replicas in sync" in well.stdout
        victim = 2
        cluster.nodes[victim].kill()
        left = ",".join(address for node, address in cluster.addresses.items() if node != victim)
        while not (found := json.loads(run("status", "-b", left, "--json").stdout))["brokers"][victim - 1]["fenced"]:
            pass
        lacking = run("status", "-b", left)
        assert lacking.exit_code == 1
        assert "have replicas that are not in sync" in lacking.stderr
        assert "missing: broker 2" in lacking.stderr
        assert "fenced, so stopped or not heard of: broker 2" in lacking.stderr
        assert found["cluster_id"]
        assert found["problems"]
    finally:
        cluster.kill()
