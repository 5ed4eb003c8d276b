"""A plugin that is installed elsewhere, as the worker sees it

What is in a plugin environment the worker never imports. It knows such a plugin by its description, made when it was
installed by a process of the environment (`environments/describe.py`). From that a stand-in is made which answers every
question of the worker about names, versions and settings, so that the rest of the worker need not know the difference.
What takes code of the plugin's own goes to a process of its environment: its judgement on values, the division into
tasks, what it leaves behind, and the work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, create_model

from tidemill.connect.api import Plugin, PluginKind, Unsupported
from tidemill.connect.entities import Entity


class SettingDescription(Entity):
    """One setting: its spellings, and what a form needs to show it."""

    names: tuple[str, ...]
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str
    group: str | None
    width: str
    display_name: str
    recommended_values: tuple[str, ...]


class UnsupportedDescription(Entity):
    """A setting that is refused by name."""

    name: str
    why: str
    accepted: tuple[str, ...]


class PluginDescription(Entity):
    """Everything the worker has to know of a plugin without importing it."""

    target: str  # `module:attribute`
    name: str
    kind: PluginKind
    version: str
    doc: str
    aliases: tuple[str, ...]
    ignored: tuple[str, ...]
    unsupported: tuple[UnsupportedDescription, ...]
    java_task: str
    splits: bool
    leaves_behind: bool
    takes_any_setting: bool
    settings: tuple[SettingDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn(Plugin):
    """A plugin by its description."""

    target: str
    environment: str  # its folder


def environment_of(plugin: Plugin) -> str:
    """The environment of a plugin; empty for the worker's own."""
    return plugin.environment if isinstance(plugin, StandIn) else ""


def stand_in(description: PluginDescription, environment: str) -> StandIn:
    """Make the stand-in."""
    return StandIn(
        name=description.name,
        kind=description.kind,
        version=description.version,
        config=_model(description),
        task=_not_here,
        doc=description.doc,
        aliases=description.aliases,
        ignored=description.ignored,
        unsupported=tuple(
            Unsupported(name=each.name, why=each.why, accepted=each.accepted) for each in description.unsupported
        ),
        split=_not_here if description.splits else None,
        check=_not_here,  # there is always one: it judges the values, too
        left_behind=_not_here if description.leaves_behind else None,
        java_task=description.java_task,
        target=description.target,
        environment=environment,
    )


def _not_here(*_: object) -> NoReturn:
    raise AssertionError("code of a plugin environment was called in the worker")


def _model(description: PluginDescription) -> type[BaseModel]:
    """The plugin's settings, all of them texts."""
    fields: dict[str, Any] = {
        f"setting_{number}": (str | None, _field(each)) for number, each in enumerate(description.settings)
    }
    config = ConfigDict(extra="allow" if description.takes_any_setting else "ignore")
    return create_model("Settings", __config__=config, **fields)


def _field(setting: SettingDescription) -> Any:
    names: Sequence[str] = setting.names
    shown: Mapping[str, Any] = setting.model_dump(
        include={"type", "importance", "group", "width", "display_name", "recommended_values"}
    )
    return Field(
        default=... if setting.required else setting.default_value,
        validation_alias=names[0] if len(names) == 1 else AliasChoices(*names),
        description=setting.documentation,
        json_schema_extra={name: value for name, value in shown.items() if value is not None},
    )
