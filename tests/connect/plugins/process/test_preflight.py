"""What is refused before a connector is accepted, and under which name"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.connect.api import InvalidConfig, NotConnected
from tidemill.connect.plugins.process.settings import ProcessSettings
from tidemill.connect.plugins.process.sink import process_sink
from tidemill.connect.plugins.process.source import process_source

Settings = Callable[..., ProcessSettings]


def refused(settings: ProcessSettings) -> InvalidConfig:
    assert process_source.check is not None
    with pytest.raises(InvalidConfig) as failure:
        process_source.check(settings)
    return failure.value


def test_what_is_right_passes(settings: Settings) -> None:
    for each in (process_source, process_sink):
        assert each.check is not None
        each.check(settings())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-program", "there is no program 'no-such-program' on this worker: install it on every worker"),
        ("/", "may not be run by the worker's user"),
        ("true", "exit status 0 while it was to describe"),
        ("sh -c 'echo it broke >&2; exit 4'", "exit status 4 while it was to describe; the last it printed: it broke"),
        ("echo Hello", "no plugin that can be used"),
        ("cat", "does not say its name"),
    ],
)
def test_a_command_that_is_no_plugin(settings: Settings, command: str, said: str) -> None:
    found = refused(settings(process_command=command))
    assert found.field_name == "process.command"
    assert said in str(found)


def test_a_file_that_is_no_program(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "plugin").write_text("#!/bin/sh\n")
    found = refused(settings(process_command=str(tmp_path / "plugin")))
    assert found.field_name == "process.command"
    assert "chmod +x" in str(found)


def test_one_that_does_not_say_who_it_is(settings: Settings) -> None:
    found = refused(settings("describe=hang", process_start_timeout_ms="300"))
    assert found.field_name == "process.command"
    assert "has not answered 'describe' within 0.3 s" in str(found)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("exit", "exit status 3 while it was to validate; the last it printed: cannot go on"),
        ("garbage", "record protocol"),
    ],
)
def test_one_that_cannot_judge(settings: Settings, behaviour: str, said: str) -> None:
    found = refused(settings(f"validate={behaviour}"))
    assert found.field_name == "process.command"
    assert said in str(found)


def test_what_it_says_itself_is_not_laid_on_the_command(settings: Settings) -> None:
    assert process_source.check is not None
    with pytest.raises(NotConnected, match="as it was told to"):
        process_source.check(settings("validate=away"))
    found = refused(settings("validate=wrong"))
    assert found.field_name == "colour"


def test_one_of_another_version(settings: Settings) -> None:
    assert "speaks version 7 of the record protocol, this worker version 1" in str(refused(settings("describe=old")))


def test_settings_that_the_plugin_describes(settings: Settings) -> None:
    without = settings().flat()
    del without["colour"]
    found = refused(ProcessSettings.model_validate(without))
    assert (found.field_name, str(found)) == ("colour", "The plugin needs colour. Any will do.")
    found = refused(settings(size="many"))
    assert (found.field_name, str(found)) == ("size", "size is a whole number, not 'many'.")


def test_what_the_plugin_refuses(settings: Settings) -> None:
    found = refused(settings(colour="wrong"))
    assert (found.field_name, str(found)) == ("colour", "colour is wrong")
    assert process_source.check is not None
    with pytest.raises(ExceptionGroup) as several:
        process_source.check(settings(colour="wrong", shape="wrong"))
    assert [each.field_name for each in several.value.exceptions if isinstance(each, InvalidConfig)] == [
        "colour",
        "shape",
    ]


def test_settings_of_the_process(settings: Settings) -> None:
    found = refused(settings(process_enviroment_A="1"))
    assert found.field_name == "process.enviroment.A"
    assert "There is no setting process.enviroment.A. There are process.answer.timeout.ms" in str(found)
    ours = {**settings().flat(), "process.environment.TIDEMILL_GUARDIAN": "1"}
    assert "are the worker's" in str(refused(ProcessSettings.model_validate(ours)))


def test_a_command_that_this_worker_may_not_run(
    settings: Settings, worker_allows: Callable[[str], None], tmp_path: Path
) -> None:
    mark = tmp_path / "it ran"
    worker_allows("node plugin.js")
    found = refused(settings(process_command=f"touch '{mark}'"))
    assert found.field_name == "process.command"
    assert str(found).endswith(f"process.commands, after a comma if there are others, and restart it: touch '{mark}'")
    assert not mark.exists()


def test_a_command_that_it_may_run(settings: Settings, worker_allows: Callable[[str], None]) -> None:
    assert process_source.check is not None
    worker_allows(settings().command)
    process_source.check(settings("poll=hang"))
    worker_allows("*")
    process_source.check(ProcessSettings.model_validate({**settings().flat(), "process.environment.A": "1"}))


def test_variables_beside_a_list_of_commands(settings: Settings, worker_allows: Callable[[str], None]) -> None:
    assert process_source.check is not None
    worker_allows("")
    made = {**settings().flat(), "process.environment.LD_PRELOAD": "x", "process.environment.TIDEMILL_X": "1"}
    with pytest.raises(ExceptionGroup) as several:
        process_source.check(ProcessSettings.model_validate(made))
    found = {each.field_name: str(each) for each in several.value.exceptions if isinstance(each, InvalidConfig)}
    assert list(found) == ["process.environment.TIDEMILL_X", "process.command", "process.environment.LD_PRELOAD"]
    assert "are the worker's" in found["process.environment.TIDEMILL_X"]
