"""The settings under `process.`, and the rest for the plugin"""

import os
import shlex
from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tidemill.connect.api import InvalidConfig

PREFIX = "process."
ENVIRONMENT = "process.environment."
COMMAND = "process.command"
OURS = "TIDEMILL_"  # variables by which the worker finds what its tasks have started


class ProcessSettings(BaseModel):
    """Settings of both connectors; all others are the plugin's own."""

    model_config = ConfigDict(extra="allow")

    command: str = Field(
        alias="process.command",
        description="The program that is the plugin, and its arguments; quotes as in a shell, though there is none",
        json_schema_extra={"importance": "HIGH", "group": "Process"},
    )
    start_timeout_ms: int = Field(
        default=15_000,
        ge=100,
        alias="process.start.timeout.ms",
        description="How long the program may take to say who it is",
        json_schema_extra={"importance": "LOW", "group": "Process"},
    )
    answer_timeout_ms: int = Field(
        default=60_000,
        ge=100,
        alias="process.answer.timeout.ms",
        description="How long it may take to answer a request; then it is killed and started anew",
        json_schema_extra={"importance": "MEDIUM", "group": "Process"},
    )
    stop_timeout_ms: int = Field(
        default=2_000,
        ge=0,
        alias="process.stop.timeout.ms",
        description="How long it may take to finish what it is at, and to end, once the task is to stop",
        json_schema_extra={"importance": "LOW", "group": "Process"},
    )

    @field_validator("command")
    @classmethod
    def _has_a_program(cls, given: str) -> str:
        if not shlex.split(given):
            raise ValueError("it names no program: write the program and its arguments")
        return given

    @property
    def words(self) -> list[str]:
        """The program and its arguments."""
        return shlex.split(self.command)

    def flat(self) -> dict[str, str]:
        """The whole configuration, as far as it was given."""
        return {name: str(value) for name, value in self.model_dump(by_alias=True, exclude_unset=True).items()}


def plugin_config(config: Mapping[str, str]) -> dict[str, str]:
    """What a plugin is told of a configuration: everything but how it is started."""
    return {name: value for name, value in config.items() if not name.startswith(PREFIX)}


def environment(config: Mapping[str, str]) -> dict[str, str]:
    """The environment of the program: the task's own and what the configuration adds."""
    more = {name.removeprefix(ENVIRONMENT): value for name, value in config.items() if name.startswith(ENVIRONMENT)}
    return {**os.environ, **more}


def problems(config: Mapping[str, str]) -> Iterator[InvalidConfig]:
    """What is wrong with the settings under `process.` beyond what their model tells."""
    known = {field.alias for field in ProcessSettings.model_fields.values()}
    for name in config:
        if name.startswith(ENVIRONMENT):
            variable = name.removeprefix(ENVIRONMENT)
            if not variable or "=" in variable or "\0" in variable + config[name]:
                yield InvalidConfig(name, "There is no such environment variable.", f"Write {ENVIRONMENT}NAME.")
            elif variable.startswith(OURS):
                yield InvalidConfig(name, f"Variables that begin with {OURS} are the worker's.", "Name it otherwise.")
        elif name.startswith(PREFIX) and name not in known:
            listed = ", ".join(sorted(str(each) for each in known))
            yield InvalidConfig(name, f"There is no setting {name}.", f"There are {listed} and {ENVIRONMENT}NAME.")
