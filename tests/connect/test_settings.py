"""From flat strings to a plugin's model"""

from typing import Any

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, Field, SecretStr, ValidationError

from tidemill.connect.api import Fatal, Plugin, PluginKind, SourceTask
from tidemill.connect.settings import model_input, model_problems, parse_settings, setting_names, valid_settings


class Settings(BaseModel, populate_by_name=False):
    host: str = Field(alias="database.hostname")
    port: int = 5432
    tables: list[str] = []
    mode: str = Field(default="a", validation_alias=AliasChoices("the.mode", "mode.old"))
    ratio: float | None = None
    labels: dict[str, int] = {}
    quiet: bool = False
    note: str | None = None


def plugin(model: type[BaseModel]) -> Plugin:
    return Plugin(name="p", kind=PluginKind.SOURCE, version="1", config=model, task=lambda settings: None)  # type: ignore[arg-type,return-value]


def parse(**config: str) -> Any:
    return parse_settings(plugin(Settings), {"database.hostname": "h"} | config)


def test_settings_that_turn_out_to_be_wrong_are_told_in_one_line() -> None:
    """They were judged before; a worker may find others in its topic all the same."""
    refused = r"^the configuration is not valid: port: Input should be a valid integer[^\n]*$"
    with pytest.raises(Fatal, match=refused):
        valid_settings(plugin(Settings), {"database.hostname": "h", "port": "x"})
    assert valid_settings(plugin(Settings), {"database.hostname": "h", "port": "1"}) == parse(port="1")


def test_strings_become_what_the_model_says() -> None:
    settings = parse(port="1", tables=" a, b ,,c", ratio="0.5", labels='{"x":1}', quiet="true", note="")
    assert settings == Settings.model_validate(
        {
            "database.hostname": "h",
            "port": 1,
            "tables": ["a", "b", "c"],
            "ratio": 0.5,
            "labels": {"x": 1},
            "quiet": True,
            "note": "",
        }
    )


def test_an_empty_string_is_nothing_where_text_is_not_wanted() -> None:
    assert parse(ratio="").ratio is None
    assert parse(tables="").tables == []


def test_other_settings_of_the_connector_are_left_alone() -> None:
    class Strict(BaseModel, extra="forbid"):
        topic: str

    settings = parse_settings(plugin(Strict), {"topic": "t", "tasks.max": "1", "name": "n"})
    assert settings == Strict(topic="t")


def test_a_model_that_takes_all_gets_all() -> None:
    class Open(BaseModel, extra="allow"):
        topic: str

    assert model_input(Open, {"topic": "t", "spark.x": "1"}) == {"topic": "t", "spark.x": "1"}


def test_older_spellings_are_found() -> None:
    assert parse(**{"mode.old": "b"}).mode == "b"
    assert setting_names(Settings)[3:5] == ["the.mode", "mode.old"]


@pytest.mark.parametrize(("name", "value"), [("port", "x"), ("labels", "{"), ("quiet", "perhaps")])
def test_a_bad_value_is_named_as_it_was_written(name: str, value: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse(**{name: value})
    assert [each["loc"][0] for each in caught.value.errors()] == [name]


def test_problems_of_a_model_carry_the_prefix_of_its_family() -> None:
    class Picky(BaseModel):
        number: int = Field(alias="the.number")
        secret: SecretStr = Field(alias="secret", max_length=2)

    def no_task(settings: BaseModel) -> SourceTask:
        raise AssertionError("never started here")

    subject = Plugin(name="P", kind=PluginKind.SOURCE, version="1", config=Picky, task=no_task)
    found = model_problems(subject, {"the.number": "x", "secret": "hidden"}, "a.b.")
    assert found["the.number"][0].startswith("Invalid value x for configuration a.b.the.number: ")
    assert "[hidden]" in found["secret"][0]
    assert model_problems(subject, {"secret": "x"}, "a.b.") == {
        "the.number": ['Missing required configuration "a.b.the.number" which has no default value.']
    }


def test_a_setting_that_only_a_path_names_goes_by_its_attribute() -> None:
    class Odd(BaseModel):
        deep: str = Field("x", validation_alias=AliasChoices(AliasPath("a", "b")))

    assert setting_names(Odd) == ["deep"]
