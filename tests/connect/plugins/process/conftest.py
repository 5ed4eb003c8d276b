"""Plugins that are programs, as tasks see them"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tidemill.connect import process_commands
from tidemill.connect.api import ConverterSpec, Json, SourceOffset, TaskContext
from tidemill.connect.config import parse_worker
from tidemill.connect.plugins.process.settings import ProcessSettings

PROGRAM = Path(__file__).parent / "plugin_program.py"


class Surroundings:
    """What a task is given, and what it has told."""

    def __init__(self) -> None:
        self.stored: dict[str, SourceOffset] = {}
        self.stopping = False
        self.facts: dict[str, Json] = {}
        self.problems: list[str | None] = []

    def problem(self, about: str, message: str | None, *, retry_s: float | None = None) -> None:
        self.problems.append(message)

    def context(self, config: Mapping[str, str]) -> TaskContext:
        return TaskContext(
            connector="c",
            task=0,
            config=config,
            bootstrap_servers="",
            client_config={},
            key_converter=ConverterSpec(kind="string"),
            value_converter=ConverterSpec(kind="json", options={"schemas.enable": "false"}),
            offsets=lambda partition: self.stored.get(str(partition.get("counter"))),
            stopping=lambda: self.stopping,
            report=self.facts.update,
            problem=self.problem,
        )


@pytest.fixture
def around() -> Surroundings:
    return Surroundings()


@pytest.fixture
def config() -> Callable[..., dict[str, str]]:
    """A configuration of the program: `config("poll=hang", size="3")`."""

    def make(*behaviours: str, **more: Any) -> dict[str, str]:
        made = {
            "name": "c",
            "process.command": " ".join([sys.executable, "-P", str(PROGRAM), *behaviours]),
            "process.answer.timeout.ms": "60000",
            "process.start.timeout.ms": "60000",  # of a loaded machine
            "process.stop.timeout.ms": "1000",
            "colour": "red",
        }
        return {**made, **{name.replace("_", "."): str(value) for name, value in more.items()}}

    return make


@pytest.fixture
def settings(config: Callable[..., dict[str, str]]) -> Callable[..., ProcessSettings]:
    """The same as the model of the connectors."""
    return lambda *behaviours, **more: ProcessSettings.model_validate(config(*behaviours, **more))


@pytest.fixture
def worker_allows(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Be on a worker with this `process.commands`; without a call, on none."""

    def allow(given: str) -> None:
        with process_commands.announced(parse_worker({"process.commands": given}).process_commands) as variables:
            told = dict(variables)
        for name, value in told.items():
            monkeypatch.setenv(name, value)

    return allow
