"""What a worker knows of a plugin that it does not import"""

import pytest

from tidemill.connect.api import Plugin
from tidemill.connect.loader import Plugins
from tidemill.connect.stand_in import PluginDescription, StandIn, environment_of, stand_in
from tidemill.connect.unsupported import refuse_unsupported
from tidemill.connect.validation import Surroundings, Validator, describe, key_infos

INSTALLED = list(Plugins.installed())


def standing_in(plugin: Plugin) -> StandIn:
    """As it comes back from the file that describes it."""
    described = describe(plugin, "module:attribute").model_dump_json()
    return stand_in(PluginDescription.model_validate_json(described), "/plugins/one")


@pytest.mark.parametrize("plugin", INSTALLED, ids=lambda each: each.name)
def test_it_shows_what_the_plugin_itself_would_show(plugin: Plugin) -> None:
    other = standing_in(plugin)
    assert key_infos(other) == key_infos(plugin)
    for name in ("name", "kind", "version", "doc", "aliases", "ignored", "unsupported", "java_task"):
        assert getattr(other, name) == getattr(plugin, name)
    assert (other.split is None, other.left_behind is None) == (plugin.split is None, plugin.left_behind is None)
    assert (other.target, environment_of(other), environment_of(plugin)) == ("module:attribute", "/plugins/one", "")


@pytest.mark.parametrize("plugin", INSTALLED, ids=lambda each: each.name)
async def test_settings_are_judged_alike_but_for_their_values(plugin: Plugin) -> None:
    async def content(*_: object) -> tuple[()]:
        return ()

    around = Surroundings(group_id="g", override_policy="All", check=content, check_timeout_s=1)
    config = {"name": "c", "connector.class": plugin.name, "topics": "t", "unheard.of": "1", "file": "/f"}
    config |= dict.fromkeys(plugin.ignored[:1], "9")
    of_its_own, elsewhere = [await Validator(around).validate(each, config) for each in (plugin, standing_in(plugin))]
    assert [(each.definition, each.value.warnings) for each in elsewhere.configs] == [
        (each.definition, each.value.warnings) for each in of_its_own.configs
    ]
    missing = [each for each in of_its_own.problems() if each.startswith("Missing required")]
    assert [each for each in elsewhere.problems() if each.startswith("Missing required")] == missing


def test_its_code_is_not_called_here() -> None:
    postgres = next(each for each in INSTALLED if each.name.startswith("Postgres"))
    other = standing_in(postgres)
    assert other.check is not None
    with pytest.raises(AssertionError, match="was called in the worker"):
        other.check(None)
    refuse_unsupported(other, {"file": "x"})
