"""The chain a configuration asks for

`transforms` and `predicates` list aliases; everything else stands behind `transforms.ALIAS.` and `predicates.ALIAS.`:
the `type`, for a transform the alias of a `predicate` and whether to `negate` it, and the options of the type. What is
wrong with them is told in Kafka Connect's words, under the name of the setting.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tidemill.connect.api import InvalidConfig, Plugin, PluginKind, Predicate, Transform
from tidemill.connect.client_settings import with_prefix
from tidemill.connect.config import CONVERTERS
from tidemill.connect.references import Problem
from tidemill.connect.settings import invalid_value, model_problems, parse_settings, setting_names
from tidemill.connect.transforms.chain import Chain, ColumnConverter, Decode, Stage
from tidemill.connect.transforms.headers import HeaderFrom, InsertHeader
from tidemill.connect.transforms.registry import BUILT_IN, find
from tidemill.connect.versions import BadVersion, wanted

LISTS: Final = {PluginKind.TRANSFORMATION: "transforms", PluginKind.PREDICATE: "predicates"}
OF_ANY: Final = ("type", "plugin.version")
"""What every alias has."""

OF_TRANSFORMS: Final = ("predicate", "negate")
"""What a transformation has besides its own options."""


class Part(NamedTuple):
    """One alias of a list; its type may be missing or unknown."""

    kind: PluginKind
    alias: str
    prefix: str
    plugin: Plugin | None

    def options(self, config: Mapping[str, str]) -> dict[str, str]:
        """The options of its type."""
        reserved = (*OF_ANY, *OF_TRANSFORMS) if self.kind is PluginKind.TRANSFORMATION else OF_ANY
        return {name: text for name, text in with_prefix(config, self.prefix).items() if name not in reserved}


def aliases(config: Mapping[str, str], kind: PluginKind) -> list[str]:
    """What a list names, in order, perhaps twice."""
    return [each.strip() for each in config.get(LISTS[kind], "").split(",") if each.strip()]


def parts(config: Mapping[str, str]) -> list[Part]:
    """Every alias, once."""
    found = []
    for kind, listed in LISTS.items():
        for alias in dict.fromkeys(aliases(config, kind)):
            prefix = f"{listed}.{alias}."
            name = config.get(prefix + "type", "").strip()
            found.append(Part(kind, alias, prefix, find(name, kind) if name else None))
    return found


def make_chain(
    config: Mapping[str, str], decode_key: Decode, decode_value: Decode, columns: ColumnConverter | None = None
) -> Chain | None:
    """The chain of a configuration without problems; None without transforms."""
    found = parts(config)
    stages: list[Stage] = []
    try:
        for part in found:
            if part.kind is PluginKind.TRANSFORMATION:
                made = _stage(part, found, config)
                stages.append(made)
    except BaseException as error:
        _release(Chain(stages, decode_key, decode_value), error)
        raise
    return Chain(stages, decode_key, decode_value, columns) if stages else None


def _release(made: Chain | Transform, error: BaseException) -> None:
    """Close what was made in vain; what that gives rise to is a note on why it was."""
    try:
        made.close()
    except Exception as other:
        error.add_note(f"and a transform failed while it was closed: {type(other).__name__}: {other}")


def _stage(part: Part, found: list[Part], config: Mapping[str, str]) -> Stage:
    made = _make(part, config)
    assert isinstance(made, Transform), f"{part.prefix}type is a transformation"
    try:
        return _with_condition(part, made, found, config)
    except BaseException as error:
        _release(made, error)
        raise


def _with_condition(part: Part, made: Transform, found: list[Part], config: Mapping[str, str]) -> Stage:
    alias = config.get(part.prefix + "predicate", "").strip()
    predicate: Predicate | None = None
    if alias:
        used = next(each for each in found if each.kind is PluginKind.PREDICATE and each.alias == alias)
        held = _make(used, config)
        assert isinstance(held, Predicate), f"{used.prefix}type is a predicate"
        predicate = held
    return Stage(
        alias=part.alias,
        name=part.plugin.name if part.plugin is not None else "",
        transform=made,
        predicate=predicate,
        negate=config.get(part.prefix + "negate", "false").strip().lower() == "true",
    )


def _make(part: Part, config: Mapping[str, str]) -> object:
    if part.plugin is None:
        raise InvalidConfig(part.prefix + "type", f"{part.prefix}type names nothing that is installed")
    return part.plugin.task(parse_settings(part.plugin, part.options(config)))


# ------------------------------------------------------------------- judgement


def problems(config: Mapping[str, str]) -> Iterator[Problem]:
    """What is wrong with the chain."""
    for kind, listed in LISTS.items():
        names = aliases(config, kind)
        if len(names) > len(set(names)):
            yield Problem(listed, invalid_value(f"[{', '.join(names)}]", listed, "Duplicate alias provided."))
    for part in parts(config):
        yield from _type_problems(part, config)
        if part.kind is PluginKind.TRANSFORMATION:
            yield from _condition_problems(part, config)
        if part.plugin is not None:
            yield from _option_problems(part, part.plugin, config)


def _type_problems(part: Part, config: Mapping[str, str]) -> Iterator[Problem]:
    name = part.prefix + "type"
    given = config.get(name, "").strip()
    if not given:
        yield Problem(name, f'Missing required configuration "{name}" which has no default value.')
    elif part.plugin is None:
        yield Problem(
            name, invalid_value(given, name, f"Class {given} could not be found. {_instead(given, part.kind)}")
        )
    version = config.get(part.prefix + "plugin.version", "").strip()
    try:
        if part.plugin is not None and not wanted(version).contains(part.plugin.version):
            text = f"Version {version} of {part.plugin.name} is not installed: this worker has {part.plugin.version}"
            yield Problem(part.prefix + "plugin.version", text)
    except BadVersion as error:
        yield Problem(part.prefix + "plugin.version", str(error))


def _instead(given: str, kind: PluginKind) -> str:
    """What to write for a type that is not there, or how it gets there."""
    sides = [side for side in (f"{given}$Key", f"{given}$Value") if find(side, kind) is not None]
    if sides:
        return f"Take {' or '.join(sides)}."
    return "GET /connector-plugins?connectorsOnly=false lists what is there; what is installed is found at the start."


def _condition_problems(part: Part, config: Mapping[str, str]) -> Iterator[Problem]:
    predicate, negate = part.prefix + "predicate", part.prefix + "negate"
    given = config.get(negate, "false")
    if given.strip().lower() not in ("true", "false"):
        yield Problem(negate, invalid_value(given, negate, "Expected value to be either true or false"))
    alias = config.get(predicate, "").strip()
    if not alias and negate in config:
        text = (
            f"Config '{negate}' was provided but there is no config '{predicate}' defining a predicate to be negated."
        )
        yield Problem(part.prefix + "type", text)
    if alias and alias not in aliases(config, PluginKind.PREDICATE):
        yield Problem(predicate, invalid_value(alias, predicate, "it is not among the aliases in 'predicates'"))


def _option_problems(part: Part, plugin: Plugin, config: Mapping[str, str]) -> Iterator[Problem]:
    options = part.options(config)
    for name, text in plugin.refusals(options):
        yield Problem(part.prefix + name, part.prefix + text)
    found = model_problems(plugin, options, part.prefix)
    for name, texts in found.items():
        yield from (Problem(part.prefix + (name or "type"), text) for text in texts)
    if found or plugin not in BUILT_IN:
        return  # what others do when they are made is for the task's process
    try:
        made = plugin.task(parse_settings(plugin, options))
    except InvalidConfig as error:
        name = part.prefix + error.field_name
        yield Problem(name, invalid_value(options.get(error.field_name), name, str(error)))
        return
    except ValueError as error:
        yield Problem(part.prefix + "type", f"{plugin.name} cannot be made: {error}")
        return
    converter = CONVERTERS.get(config.get("header.converter", "").strip())
    if isinstance(made, (InsertHeader, HeaderFrom)) and converter not in (None, "string"):
        text = f"'{part.prefix}type' writes headers as text: remove 'header.converter'"
        yield Problem("header.converter", text)


def without_effect(config: Mapping[str, str]) -> Iterator[Problem]:
    """Settings of the two families that nobody reads."""
    found = parts(config)
    prefixes = tuple(f"{listed}." for listed in LISTS.values())
    for name in (each for each in config if each.startswith(prefixes)):
        listed, _, rest = name.partition(".")
        part = next((each for each in found if name.startswith(each.prefix)), None)
        if part is None:
            yield Problem(name, f"'{name}' has no effect: '{listed}' does not list '{rest.partition('.')[0]}'")
        elif part.plugin is not None and not _reads(part, part.plugin, name.removeprefix(part.prefix)):
            known = ", ".join(setting_names(part.plugin.config)) or "no options"
            simple = part.plugin.name.rpartition(".")[2]
            yield Problem(name, f"'{name}' has no effect: {simple} knows {known}")


def _reads(part: Part, plugin: Plugin, name: str) -> bool:
    if name in OF_ANY or (part.kind is PluginKind.TRANSFORMATION and name in OF_TRANSFORMS):
        return True
    if any(each.refuses(name, "?") for each in plugin.unsupported):
        return True  # and is refused, or asks for nothing
    return plugin.config.model_config.get("extra") == "allow" or name in setting_names(plugin.config)
