"""A plugin's own settings, from flat strings to its model

A connector's configuration is one flat map of strings in which Connect's settings, the converters' and the plugin's
stand side by side. A plugin declares its own as a pydantic model whose aliases are the setting names. This file picks
those out and gives every string the shape pydantic expects: a list is split at commas, a map is read as JSON, the
rest pydantic converts by itself.

A model that allows extra fields receives every setting there is, for plugins that pass a family of settings on.
"""

import json
import types
from collections.abc import Iterator, Mapping
from typing import Any, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tidemill.connect.api import Fatal, InvalidConfig, Plugin

HIDDEN = "[hidden]"
"""What is shown of a secret."""


def parse_settings(plugin: Plugin, config: Mapping[str, str]) -> BaseModel:
    """Make the plugin's model from a connector's configuration; pydantic's ValidationError says what is wrong."""
    return plugin.config.model_validate(model_input(plugin.config, config))


def valid_settings(plugin: Plugin, config: Mapping[str, str]) -> BaseModel:
    """The same of a configuration that was judged before and may be wrong all the same; raises Fatal, in one line."""
    try:
        return parse_settings(plugin, config)
    except ValidationError as error:
        problems = "; ".join(f"{name}: {message}" for name, message in refusals(error))
        raise Fatal(f"the configuration is not valid: {problems}") from error


def refusals(error: ValidationError) -> Iterator[tuple[str, str]]:
    """Each setting that a model refused, and why."""
    for each in error.errors(include_url=False, include_input=False):
        yield ".".join(str(part) for part in each["loc"]), each["msg"]


def model_input(model: type[BaseModel], config: Mapping[str, str]) -> dict[str, Any]:
    """Pick the model's settings out of a flat configuration, each in a shape that pydantic can convert."""
    found: dict[str, Any] = {}
    if model.model_config.get("extra") == "allow":
        found.update(config)
    for names, info in _fields(model):
        for name in names:
            if config.get(name) is not None:
                found[name] = _shaped(config[name], info)
    return found


def setting_names(model: type[BaseModel]) -> list[str]:
    """Every setting the model reads, in the order its author wrote them."""
    return [name for names, _ in _fields(model) for name in names]


def setting_spellings(model: type[BaseModel]) -> list[list[str]]:
    """The same, the spellings of one setting together."""
    return [names for names, _ in _fields(model)]


def model_problems(plugin: Plugin, config: Mapping[str, str], prefix: str = "") -> dict[str, list[str]]:
    """What the plugin's model refuses, by setting; the empty name stands for the whole.

    `prefix` stands before the names in the sentences, where the settings come from a family of that prefix.
    """
    try:
        parse_settings(plugin, config)
    except InvalidConfig as error:
        return {error.field_name: [str(error)]}
    except ValidationError as error:
        found: dict[str, list[str]] = {}
        secrets = {name for names, info in _fields(plugin.config) if is_secret(info) for name in names}
        for problem in error.errors(include_url=False, include_context=False):
            name = str(problem["loc"][0]) if problem["loc"] else ""
            raw = HIDDEN if name in secrets else config.get(name)
            found.setdefault(name, []).append(_sentence(prefix + name if name else "", raw, problem))
        return found
    except Exception as error:  # a bug in the plugin's own validators
        return {"": [f"{plugin.name} could not read its configuration: {type(error).__name__}: {error}"]}
    return {}


def is_secret(info: FieldInfo) -> bool:
    """Whether a setting is shown to nobody."""
    kinds = [get_origin(each) or each for each in _alternatives(info.annotation)]
    return any(isinstance(kind, type) and issubclass(kind, (SecretStr, SecretBytes)) for kind in kinds)


def _sentence(name: str, raw: str | None, problem: ErrorDetails) -> str:
    if problem["type"] == "missing":
        return f'Missing required configuration "{name}" which has no default value.'
    message = problem["msg"].removeprefix("Value error, ")
    return invalid_value(raw, name, message) if name else message


def invalid_value(raw: str | None, name: str, message: str) -> str:
    """Connect's sentence about a value."""
    return f"Invalid value {raw} for configuration {name}: {message}"


def _fields(model: type[BaseModel]) -> Iterator[tuple[list[str], FieldInfo]]:
    for attribute, info in model.model_fields.items():
        alias = info.validation_alias or info.alias
        if isinstance(alias, AliasChoices):
            yield [choice for choice in alias.choices if isinstance(choice, str)] or [attribute], info
        else:
            yield [alias if isinstance(alias, str) else attribute], info


def _shaped(text: str, info: FieldInfo) -> Any:
    kinds = {get_origin(each) or each for each in _alternatives(info.annotation)}
    if kinds & {list, tuple, set, frozenset}:
        return [item.strip() for item in text.split(",") if item.strip()]
    if dict in kinds:
        try:
            return json.loads(text)
        except ValueError:
            return text  # pydantic then says that a map was expected
    if type(None) in kinds and text == "" and str not in kinds:
        return None
    return text


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)
