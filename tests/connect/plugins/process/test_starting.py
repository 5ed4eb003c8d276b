"""What a plugin is told when its work begins"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.connect.plugins.process.conftest import Surroundings
from tidemill.connect.api import Fatal
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.settings import ProcessSettings
from tidemill.connect.plugins.process.starting import start_request, started

Config = Callable[..., dict[str, str]]


def test_everything_but_how_it_is_started() -> None:
    context = Surroundings().context({"process.command": "x", "topics": "a,b", "file": "f"})
    assert start_request(context, [pb.Setting(name="size", default="3")]) == pb.Start(
        connector="c",
        task=0,
        config={"topics": "a,b", "file": "f", "size": "3"},
        key_converter=pb.Converter(kind="string"),
        value_converter=pb.Converter(kind="json", options={"schemas.enable": "false"}),
    )


def test_a_task_does_not_run_what_its_worker_may_not(
    config: Config, around: Surroundings, worker_allows: Callable[[str], None], tmp_path: Path
) -> None:
    mark = tmp_path / "it ran"
    worker_allows("")
    made = config(process_command=f"touch '{mark}'")
    with pytest.raises(Fatal, match=r"^process\.command: .* and restart it: touch '.*'$"):
        started(ProcessSettings.model_validate(made), around.context(made), pb.SOURCE)
    assert not mark.exists()


def test_nor_with_variables_of_its_own(
    config: Config, around: Surroundings, worker_allows: Callable[[str], None]
) -> None:
    made = {**config(), "process.environment.PYTHONINSPECT": "1"}
    worker_allows(made["process.command"])
    with pytest.raises(Fatal, match=r"^process\.environment\.PYTHONINSPECT: .* Set PYTHONINSPECT in the environment"):
        started(ProcessSettings.model_validate(made), around.context(made), pb.SOURCE)
    del made["process.environment.PYTHONINSPECT"]
    started(ProcessSettings.model_validate(made), around.context(made), pb.SOURCE).stop()
