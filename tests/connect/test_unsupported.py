"""What must not be run, and what is set in vain"""

import pytest
from pydantic import BaseModel

from tidemill.connect.api import Plugin, PluginKind, SourceTask, Unsupported
from tidemill.connect.unsupported import CannotRun, not_built, refuse_unsupported, without_effect

ASKED = {
    "transforms": "unwrap,unwrap",
    "predicates": "p,p",
    "exactly.once.support": "required",
    "transaction.boundary": "connector",
    "offsets.storage.topic": "own",
    "header.converter": "org.example.Headers",
    "database.password": "${file:/run/secrets:pw}",
}


@pytest.mark.parametrize(("name", "value"), ASKED.items())
def test_each_is_named(name: str, value: str) -> None:
    types = {"transforms.unwrap.type": "Filter", "predicates.p.type": "RecordIsTombstone"}
    assert [problem.setting for problem in not_built({name: value, **types})] == [name]


class Options(BaseModel):
    """Nothing to set."""


def no_task(settings: Options) -> SourceTask:
    raise AssertionError("never started here")


PLUGIN = Plugin(
    name="P",
    kind=PluginKind.SOURCE,
    version="1",
    config=Options,
    task=no_task,
    unsupported=(Unsupported(name="mask.", why="nothing would be masked"),),
)


def test_a_configuration_is_refused_with_all_its_problems() -> None:
    with pytest.raises(CannotRun) as caught:
        refuse_unsupported(PLUGIN, ASKED | {"mask.ssn": "x"})
    assert len(str(caught.value).splitlines()) == len(ASKED) + 3  # and the two types that are missing
    refuse_unsupported(PLUGIN, {"exactly.once.support": "requested", "transaction.boundary": "poll", "transforms": " "})


def test_an_option_the_converter_does_not_have_is_in_vain() -> None:
    config = {
        "key.converter.schemas.enabled": "false",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    found = list(without_effect(config, {"key": "json", "value": "bytes"}))
    assert [problem.setting for problem in found] == [
        "key.converter.schemas.enabled",
        "value.converter.schemas.enable",
    ]
    assert "key.converter.schemas.enable" in found[0].text and "no options" in found[1].text


def test_a_converter_of_headers_is_in_vain() -> None:
    kinds = {"key": "json", "value": "json"}
    name = "org.apache.kafka.connect.json.JsonConverter"
    found = list(without_effect({"header.converter": name, "header.converter.schemas.enable": "false"}, kinds))
    assert [problem.setting for problem in found] == ["header.converter", "header.converter.schemas.enable"]
    assert found[0].text == "'header.converter' has no effect: headers pass as they are, not as JSON"
    own = {"header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"}
    assert list(without_effect({**own, "header.converter.plugin.version": "latest"}, kinds)) == []


def test_options_without_a_converter_are_in_vain() -> None:
    config = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    [found] = without_effect(config, {"value": "json"})
    assert found.setting == "key.converter.schemas.enable" and "without 'key.converter'" in found.text
