"""The worker fixture, with the file plugins."""

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from tidemill.rest_client import RestFailure
from tidemill.testing.connect_worker import ConnectorFailed, ConnectWorker

if TYPE_CHECKING:
    from tidemill.services import Service

pytestmark = pytest.mark.integration

SOURCE = {"connector.class": "FileStreamSource", "value.converter": "org.apache.kafka.connect.storage.StringConverter"}
SINK = {
    "connector.class": "FileStreamSink",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


def test_a_connector_runs_and_is_gone(tidemill_worker: ConnectWorker, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("one\n")
    tidemill_worker.create("fixture-source", SOURCE | {"file": str(file), "topic": "fixture-lines"})
    tidemill_worker.wait_running("fixture-source")
    with urlopen(f"{tidemill_worker.url}/connectors") as answer:
        assert json.load(answer) == ["fixture-source"]
    assert [task["state"] for task in tidemill_worker.status("fixture-source")["tasks"]] == ["RUNNING"]
    tidemill_worker.delete("fixture-source")
    with urlopen(f"{tidemill_worker.url}/connectors") as answer:
        assert json.load(answer) == []
    tidemill_worker.delete("fixture-source")


def test_the_worker_is_on_the_broker_of_the_other_fixture(
    tidemill_worker: ConnectWorker, tidemill_broker: "Service", tmp_path: Path
) -> None:
    assert tidemill_broker.facts["address"] in tidemill_worker.service.command
    settings = {"file": str(tmp_path / "out"), "topics": "fixture-out"}
    tidemill_worker.create("fixture-sink", SINK | settings)
    tidemill_worker.wait_running("fixture-sink")
    tidemill_worker.delete("fixture-sink")


def test_what_is_wrong_with_a_configuration_is_raised(tidemill_worker: ConnectWorker, tmp_path: Path) -> None:
    with pytest.raises(RestFailure, match="topic") as caught:
        tidemill_worker.create("fixture-bad", SOURCE | {"file": str(tmp_path / "lines")})
    assert caught.value.status == 400


def test_why_a_task_failed_is_raised(tidemill_worker: ConnectWorker, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\n")
    settings = {"file": str(tmp_path / "lines" / "below"), "topic": "fixture-lines"}
    tidemill_worker.create("fixture-failing", SOURCE | settings)

    def wait_for_ever() -> None:
        while True:  # it may run for a moment
            tidemill_worker.wait_running("fixture-failing")

    with pytest.raises(ConnectorFailed, match=r"fixture-failing: (?s:.*)cannot read"):
        wait_for_ever()
    tidemill_worker.delete("fixture-failing")


def test_one_that_is_not_there_does_not_come_to_run(tidemill_worker: ConnectWorker) -> None:
    with pytest.raises(TimeoutError, match=r"fixture-nobody does not run after 0[.]2 s: no status yet"):
        tidemill_worker.wait_running("fixture-nobody", timeout_s=0.2)
