"""Settings under `process.`, and the rest of a configuration"""

import pytest
from pydantic import ValidationError

from tidemill.connect.plugins.process.settings import ProcessSettings, environment, plugin_config, problems

CONFIG = {
    "name": "n",
    "process.command": "node 'my plugin.js' --fast",
    "process.environment.LANG": "C",
    "process.answer.timeout.ms": "500",
    "topic": "t",
}


def test_a_command_is_words() -> None:
    settings = ProcessSettings.model_validate(CONFIG)
    assert settings.words == ["node", "my plugin.js", "--fast"]
    assert settings.answer_timeout_ms == 500
    assert settings.flat() == CONFIG


@pytest.mark.parametrize(("command", "why"), [("", "names no program"), ("a 'b", "No closing quotation")])
def test_a_command_that_is_none(command: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ProcessSettings.model_validate({"process.command": command})


def test_the_plugin_is_told_the_rest() -> None:
    assert plugin_config(CONFIG) == {"name": "n", "topic": "t"}


def test_a_setting_of_the_plugin_may_have_a_name_of_ours() -> None:
    more = {"command": "theirs", "words": "1", "flat": "2", "answer_timeout_ms": "3"}
    settings = ProcessSettings.model_validate({**CONFIG, **more})
    assert (settings.words[0], settings.answer_timeout_ms) == ("node", 500)
    assert settings.flat() == {**CONFIG, **more}


def test_the_environment_is_ours_and_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANG", "de")
    monkeypatch.setenv("TIDEMILL_GUARDIAN", "7")
    found = environment(CONFIG)
    assert (found["LANG"], found["TIDEMILL_GUARDIAN"]) == ("C", "7")


def test_settings_that_are_not_there() -> None:
    assert list(problems(CONFIG)) == []
    wrong = {"process.comand": "x", "process.environment.": "x", "process.environment.TIDEMILL_X": "1"}
    assert [each.field_name for each in problems(wrong)] == list(wrong)
