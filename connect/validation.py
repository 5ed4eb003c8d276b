"""The judgement on a connector's configuration

What `PUT …/config/validate` answers and what every create and update is checked by first: one entry per setting, with
its definition, its value as understood and what is wrong with it. The settings come from two places: Connect's own from
the tables of `config`, the plugin's from its pydantic model, whose field names, types, defaults and descriptions are
all there is to say about them.

Beyond single settings: rules that tie several together (`topics` or `topics.regex`, a consumer group that is the
worker's own), things that are not built yet, named as such instead of being ignored, and the plugin's own preflight,
which is run last, elsewhere and against a deadline, because it may talk to a database that does not answer.

A setting that nobody knows is no error, as in Connect: connectors are full of keys for their tools. It is a warning,
with the nearest name that somebody knows, as is one that is known and has nothing to act on here. Warnings stand beside
the errors in the answer, where Apache's has no field, and are logged once.
"""

import asyncio
import enum
import types
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

import structlog
from pydantic import AliasChoices, BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tidemill.connect import task_isolation
from tidemill.connect.api import Plugin, PluginKind
from tidemill.connect.client_settings import translate, with_prefix
from tidemill.connect.config import (
    CONNECTOR,
    CONNECTOR_PREFIXES,
    CONVERTERS,
    SINK,
    SOURCE,
    ConnectorKey,
    converter,
    groups,
)
from tidemill.connect.converters.registry import make_converter
from tidemill.connect.entities import ConfigInfo, ConfigInfos, ConfigKeyInfo, ConfigValueInfo
from tidemill.connect.references import Problem
from tidemill.connect.settings import HIDDEN, model_problems, setting_names, setting_spellings
from tidemill.connect.stand_in import PluginDescription, SettingDescription, UnsupportedDescription
from tidemill.connect.task_limits import CPU_MAX, DELEGATE
from tidemill.connect.task_spec import SettingProblem
from tidemill.connect.transforms import registry, stages
from tidemill.connect.unsupported import not_built, without_effect
from tidemill.connect.versions import BadVersion, shown, wanted
from tidemill.core.config import REQUIRED, ConfigError, ConfigType, Value, nearest

log = structlog.get_logger("tidemill.connect.validation")

Submitted: TypeAlias = Mapping[str, str | None]
"""A configuration as it came in; JSON's null is still to be seen."""

Check: TypeAlias = Callable[[Plugin, Mapping[str, str]], Awaitable[Sequence[SettingProblem]]]
"""Runs a plugin's preflight somewhere it can do no harm."""

NULL_VALUE = "Null value can not be supplied as the configuration value."
OVERRIDES = ("producer.override.", "consumer.override.", "admin.override.")
HINTS_MAX = 50
"""Unknown settings of one configuration for which the nearest known name is looked up, which takes a millisecond."""

COMPLAINTS_MAX = 1_000
"""Settings in doubt that are logged in the life of a worker; the answers tell of all."""

DESCRIBED = {"type", "required", "default_value", "importance", "documentation", "group", "width", "display_name"}
"""What a description has of the definition of a setting."""

PRINCIPAL_SETTINGS = {"sasl.jaas.config", "sasl.mechanism", "security.protocol"}
"""What `connector.client.config.override.policy=Principal` lets a connector override."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the judgement depends on besides the configuration."""

    group_id: str  # the worker group's, which no sink may use
    override_policy: str
    check: Check
    check_timeout_s: float
    versions: Callable[[Plugin], Sequence[str]] = lambda plugin: (plugin.version,)  # in which it is installed
    no_cgroups: str = ""  # why tasks cannot be limited by the kernel; empty where they can


class Validator:
    """Judges configurations for one worker."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        self._complained: set[tuple[str, str]] = set()

    async def validate(self, plugin: Plugin, submitted: Submitted) -> ConfigInfos:
        """Judge `submitted` as a configuration of `plugin`."""
        config = {name: value for name, value in submitted.items() if value is not None}
        entries = _entries(plugin, config)
        sheet = _Sheet(entries, config)
        for name, value in submitted.items():
            if value is None:
                sheet.refuse(name, NULL_VALUE)
        for name, problem in self._rules(plugin, config):
            sheet.refuse(name, problem)
        if not any(entry.errors for entry in entries):
            for name, problem in await self._preflight(plugin, config):
                sheet.refuse(name, problem)
        for name, warning in self.warnings(plugin, config):
            sheet.warn(name, warning)
            if (plugin.name, name) not in self._complained and len(self._complained) < COMPLAINTS_MAX:
                self._complained.add((plugin.name, name))
                log.warning("setting in doubt", connector_class=plugin.name, setting=name, warning=warning)
        shown = str(submitted.get("connector.class") or plugin.name)
        return sheet.infos(shown, _group_names(plugin, config))

    def warnings(self, plugin: Plugin, config: Mapping[str, str]) -> list[Problem]:
        """Settings of `config` that do nothing, each with a sentence that says so."""
        found = [*_in_vain(plugin, config), *without_effect(config, _converter_kinds(config))]
        found += stages.without_effect(config)
        for prefix in OVERRIDES:
            for name in translate(with_prefix(config, prefix)).unknown:
                text = f"'{prefix}{name}' has no effect: librdkafka has no such setting"
                found.append(Problem(prefix + name, text))
        return found

    def _rules(self, plugin: Plugin, config: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        yield from not_built(config)
        yield from _converter_problems(config)
        yield from plugin.refusals(config)
        yield from self._overrides(config)
        yield from self._version_problems(plugin, config.get("connector.plugin.version", ""))
        yield from self._limits(config)
        yield from task_isolation.refusals(config, plugin)
        if plugin.kind is PluginKind.SINK:
            yield from _sink_rules(config)
            group = config.get("consumer.override.group.id", f"connect-{config.get('name', '')}")
            if not group.strip():
                yield "consumer.override.group.id", "The id of a consumer group must not be empty"
            if group == self._around.group_id:
                where = "consumer.override.group.id" if "consumer.override.group.id" in config else "name"
                yield where, f"Consumer group {group} conflicts with Connect worker group {self._around.group_id}"

    def _limits(self, config: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        if self._around.no_cgroups and config.get(CPU_MAX, "0").strip() not in ("0", "0.0"):
            yield (
                CPU_MAX,
                f"{CPU_MAX} cannot be kept by this worker: {self._around.no_cgroups}. Remove it, or {DELEGATE}",
            )

    def _version_problems(self, plugin: Plugin, version: str) -> Iterable[tuple[str, str]]:
        try:
            if not wanted(version).contains(plugin.version):
                there = shown(self._around.versions(plugin))
                text = f"Version {version.strip()} of {plugin.name} is not installed: this worker has {there}"
                yield "connector.plugin.version", text
        except BadVersion as error:
            yield "connector.plugin.version", str(error)

    def _overrides(self, config: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        policy = self._around.override_policy
        for prefix in OVERRIDES:
            for name in with_prefix(config, prefix):
                if policy == "None" or (policy == "Principal" and name not in PRINCIPAL_SETTINGS):
                    text = (
                        f"The '{policy}' policy does not allow '{name}' to be overridden in the connector configuration"
                    )
                    yield prefix + name, text

    async def _preflight(self, plugin: Plugin, config: Mapping[str, str]) -> Sequence[tuple[str, str]]:
        if plugin.check is None:
            return []
        try:
            async with asyncio.timeout(self._around.check_timeout_s):
                found = await self._around.check(plugin, config)
        except TimeoutError:
            text = f"The preflight of {plugin.name} gave no answer within {self._around.check_timeout_s:g} s."
            return [("connector.class", text)]
        return [(problem.name or "connector.class", problem.message) for problem in found]


def key_infos(plugin: Plugin) -> list[ConfigKeyInfo]:
    """The definitions of the plugin's own settings: GET /connector-plugins/{p}/config."""
    return [_definition(name, info, plugin) for name, info in _model_fields(plugin.config)]


def describe(plugin: Plugin, target: str) -> PluginDescription:
    """Everything a worker has to know of a plugin that it does not import."""
    spellings = setting_spellings(plugin.config)
    settings = tuple(
        SettingDescription(
            names=tuple(spellings[number]),
            recommended_values=_choices(info),
            **_definition(name, info, plugin).model_dump(include=DESCRIBED),
        )
        for number, (name, info) in enumerate(_model_fields(plugin.config))
    )
    return PluginDescription(
        target=target,
        name=plugin.name,
        kind=plugin.kind,
        version=plugin.version,
        doc=plugin.doc,
        aliases=plugin.aliases,
        ignored=plugin.ignored,
        unsupported=tuple(
            UnsupportedDescription(name=each.name, why=each.why, accepted=each.accepted) for each in plugin.unsupported
        ),
        java_task=plugin.java_task,
        splits=plugin.split is not None,
        leaves_behind=plugin.left_behind is not None,
        takes_any_setting=plugin.config.model_config.get("extra") == "allow",
        settings=settings,
    )


# ------------------------------------------------------------------- the sheet


@dataclass(slots=True)
class _Entry:
    definition: ConfigKeyInfo | None
    name: str
    value: str | None
    recommended: tuple[str, ...]
    errors: list[str]
    warnings: list[str] = field(default_factory=list)


class _Sheet:
    """The entries of one judgement; a problem with a name nobody defined gets an entry of its own."""

    def __init__(self, entries: list[_Entry], config: Mapping[str, str]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._config = config

    def refuse(self, name: str, problem: str) -> None:
        entry = self._entry(name)
        if problem not in entry.errors:
            entry.errors.append(problem)

    def warn(self, name: str, warning: str) -> None:
        self._entry(name).warnings.append(warning)

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            self._entries[name] = _Entry(None, name, self._config.get(name), (), [])
        return self._entries[name]

    def infos(self, name: str, group_names: Sequence[str]) -> ConfigInfos:
        configs = tuple(
            ConfigInfo(
                definition=entry.definition,
                value=ConfigValueInfo(
                    name=entry.name,
                    value=entry.value,
                    recommended_values=entry.recommended,
                    errors=tuple(entry.errors),
                    warnings=tuple(entry.warnings) or None,
                ),
            )
            for entry in self._entries.values()
        )
        errors = sum(len(info.value.errors) for info in configs)
        warnings = sum(len(info.value.warnings or ()) for info in configs)
        return ConfigInfos(
            name=name,
            error_count=errors,
            groups=tuple(group_names),
            configs=configs,
            warning_count=warnings or None,
        )


def _rows(plugin: Plugin) -> tuple[ConnectorKey, ...]:
    return CONNECTOR + (SOURCE if plugin.kind is PluginKind.SOURCE else SINK)


def _group_names(plugin: Plugin, config: Mapping[str, str]) -> list[str]:
    own = (_extra(info).get("group") for _, info in _model_fields(plugin.config))
    chain = (_part_group(part) for part in stages.parts(config))
    return list(dict.fromkeys([*groups(_rows(plugin)), *chain, *(str(group) for group in own if group)]))


def _entries(plugin: Plugin, config: Mapping[str, str]) -> list[_Entry]:
    entries = [_table_entry(row, config.get(row.key.name)) for row in _rows(plugin)]
    entries += [entry for part in stages.parts(config) for entry in _part_entries(part, config)]
    problems = model_problems(plugin, config)
    own = {name for name, _ in _model_fields(plugin.config)}
    for name, info in _model_fields(plugin.config):
        entries.append(_model_entry(plugin, name, info, config, problems.pop(name, [])))
    for name, texts in problems.items():  # problems of the model as a whole, or of a second spelling
        where = name if name in own else "connector.class"
        next(entry for entry in entries if entry.name == where).errors.extend(texts)
    return entries


# ------------------------------------------------------ Connect's own settings


def _table_entry(row: ConnectorKey, raw: str | None) -> _Entry:
    key = row.key
    required = key.default is REQUIRED
    default = None if key.default is REQUIRED else _text(key.default)
    definition = ConfigKeyInfo(
        name=key.name,
        type=key.type.value,
        required=required,
        default_value=default,
        importance=key.importance.value,
        documentation=key.doc,
        group=row.group,
        order_in_group=row.order,
        width=row.width,
        display_name=row.display_name,
    )
    errors: list[str] = []
    value: str | None = raw
    if raw is None and required:
        errors.append(f'Missing required configuration "{key.name}" which has no default value.')
    else:
        try:
            value = _text(key.parse(raw))
        except ConfigError as error:
            # Connect's sentence, without the quotes around the value.
            errors += [problem.replace(f"Invalid value {raw!r}", f"Invalid value {raw}") for problem in error.problems]
    if key.type is ConfigType.PASSWORD and value is not None:
        value = HIDDEN
    return _Entry(definition, key.name, value, _recommended(key.name), errors)


def _recommended(name: str) -> tuple[str, ...]:
    if name in ("key.converter", "value.converter"):
        return tuple(converter for converter in CONVERTERS if converter.startswith("org."))
    return ()


def _text(value: Value) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return None if value is None else str(value)


# ------------------------------------------------------- the plugin's settings


def _model_fields(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """Fields by the name they are set under; of several spellings, the first."""
    fields = []
    for attribute, info in model.model_fields.items():
        alias = info.validation_alias or info.alias
        if isinstance(alias, AliasChoices):
            alias = next((choice for choice in alias.choices if isinstance(choice, str)), attribute)
        fields.append((alias if isinstance(alias, str) else attribute, info))
    return fields


def _extra(info: FieldInfo) -> Mapping[str, Any]:
    return info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}


def _definition(name: str, info: FieldInfo, plugin: Plugin) -> ConfigKeyInfo:
    extra = _extra(info)
    group = extra.get("group")
    order = [field for field, each in _model_fields(plugin.config) if _extra(each).get("group") == group].index(name)
    kind = _config_type(info)
    return ConfigKeyInfo(
        name=name,
        type=str(extra.get("type", kind.value)),
        required=info.is_required(),
        default_value=_default_text(info, kind),
        importance=str(extra.get("importance", "HIGH" if info.is_required() else "MEDIUM")).upper(),
        documentation=info.description or "",
        group=None if group is None else str(group),
        order_in_group=-1 if group is None else order + 1,
        width=str(extra.get("width", "NONE")).upper(),
        display_name=str(extra.get("display_name", info.title or name)),
    )


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return [each for each in get_args(annotation) if each is not type(None)]
    return [annotation]


_TYPES: Sequence[tuple[type, ConfigType]] = (
    (bool, ConfigType.BOOLEAN),
    (enum.Enum, ConfigType.STRING),
    (int, ConfigType.LONG),
    (float, ConfigType.DOUBLE),
    (SecretStr, ConfigType.PASSWORD),
    (SecretBytes, ConfigType.PASSWORD),
    (str, ConfigType.STRING),
    (list, ConfigType.LIST),
    (tuple, ConfigType.LIST),
    (set, ConfigType.LIST),
    (frozenset, ConfigType.LIST),
)


def _config_type(info: FieldInfo) -> ConfigType:
    for annotation in _alternatives(info.annotation):
        kind = get_origin(annotation) or annotation
        for python, config_type in _TYPES:
            if isinstance(kind, type) and issubclass(kind, python):
                return config_type
    return ConfigType.STRING


def _default_text(info: FieldInfo, kind: ConfigType) -> str | None:
    if info.is_required():
        return None
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined:
        return None
    if kind is ConfigType.PASSWORD:
        return HIDDEN
    return _plain_text(value)


def _plain_text(value: Any) -> str | None:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(str(_plain_text(each)) for each in value)
    if isinstance(value, str | bool | int | float) or value is None:
        return _text(value)
    return str(value)


def _model_entry(plugin: Plugin, name: str, info: FieldInfo, config: Mapping[str, str], errors: list[str]) -> _Entry:
    definition = _definition(name, info, plugin)
    value = config.get(name, definition.default_value)
    if definition.type == ConfigType.PASSWORD and value is not None:
        value = HIDDEN
    return _Entry(definition, name, value, _choices(info), errors)


def _choices(info: FieldInfo) -> tuple[str, ...]:
    found: list[str] = [str(each) for each in _extra(info).get("recommended_values", ())]
    for annotation in _alternatives(info.annotation):
        if get_origin(annotation) is Literal:
            found += [str(each) for each in get_args(annotation)]
        elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            found += [str(member.value) for member in annotation]
    return tuple(found)


# ------------------------------------------------------------------ transforms


def _part_group(part: stages.Part) -> str:
    return f"{stages.LISTS[part.kind].capitalize()}: {part.alias}"


def _part_entries(part: stages.Part, config: Mapping[str, str]) -> list[_Entry]:
    """The settings of one transformation or predicate, as Connect lists them: its own among those of all."""
    alias, kind, plugin = part.alias, part.kind.value, part.plugin
    entries: list[_Entry] = []

    def add(name: str, definition: ConfigKeyInfo, value: str | None, recommended: tuple[str, ...] = ()) -> None:
        place = {"name": part.prefix + name, "group": _part_group(part), "order_in_group": len(entries)}
        entries.append(_Entry(definition.model_copy(update=place), part.prefix + name, value, recommended, []))

    def add_of_all(
        name: str, type_: ConfigType, default: str | None, doc: str, recommended: tuple[str, ...] = ()
    ) -> None:
        first = name in stages.OF_ANY
        definition = ConfigKeyInfo(
            name=name,
            type=type_.value,
            required=name == "type",
            default_value=default,
            importance="HIGH" if first else "MEDIUM",
            documentation=doc,
            group=None,
            order_in_group=-1,
            width="LONG" if first else "NONE",
            display_name=f"{kind.capitalize()} {name.rpartition('.')[2]} for {alias}" if first else name,
        )
        add(name, definition, config.get(part.prefix + name, default), recommended)

    classes = tuple(each.name for each in registry.available() if each.kind is part.kind)
    version = None if plugin is None else plugin.version
    add_of_all("type", ConfigType.CLASS, None, f"Class for the '{alias}' {kind}.", classes)
    versions = () if version is None else (version,)
    add_of_all("plugin.version", ConfigType.STRING, version, f"Version of the '{alias}' {kind}.", versions)
    if plugin is None:
        return entries
    for name, info in _model_fields(plugin.config):
        entry = _model_entry(plugin, name, info, part.options(config), [])
        assert entry.definition is not None, "every field has one"
        add(name, entry.definition, entry.value, entry.recommended)
    if part.kind is PluginKind.TRANSFORMATION:
        add_of_all("negate", ConfigType.BOOLEAN, "false", "Whether it applies where the predicate does not hold.")
        add_of_all(
            "predicate", ConfigType.STRING, None, "Alias of the predicate of records it applies to; all if absent."
        )
    return entries


# ------------------------------------------------------------------ more rules


def _sink_rules(config: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    topics = [topic.strip() for topic in config.get("topics", "").split(",") if topic.strip()]
    pattern = config.get("topics.regex", "").strip()
    problem = None
    if topics and pattern:
        problem = "topics and topics.regex are mutually exclusive options, but both are set."
    elif not topics and not pattern:
        problem = "Must configure one of topics or topics.regex"
    if problem:
        yield "topics", problem
        yield "topics.regex", problem
    dead_letters = config.get("errors.deadletterqueue.topic.name", "").strip()
    if dead_letters and dead_letters in topics:
        listed = ", ".join(topics)
        yield (
            "topics",
            f"The DLQ topic '{dead_letters}' may not be included in the list of topics "
            f"('topics=[{listed}]') consumed by the connector",
        )


def _converter_kinds(config: Mapping[str, str]) -> dict[str, str]:
    """The converters that the configuration names itself, by role; the worker's may be any."""
    specs = {role: converter(config, role) for role in ("key", "value")}
    return {role: spec.kind for role, spec in specs.items() if spec is not None}


def _converter_problems(config: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    for role in _converter_kinds(config):
        spec = converter(config, role)
        try:
            if spec is not None:
                make_converter(spec)
        except ValueError as error:
            yield f"{role}.converter", f"The {role} converter cannot be made: {error}"


def _among(name: str, names: Iterable[str]) -> bool:
    """Whether `names` has the name, or a family of it, which ends in a point."""
    return any(name == each or (each.endswith(".") and name.startswith(each)) for each in names)


def _in_vain(plugin: Plugin, config: Mapping[str, str]) -> Iterable[Problem]:
    """Settings that nobody reads: neither Connect nor the plugin, or the plugin says that it does not."""
    if plugin.config.model_config.get("extra") == "allow":
        return
    own = dict.fromkeys([*setting_names(plugin.config), *(row.key.name for row in _rows(plugin))])
    refusable = [each.name for each in plugin.unsupported]  # with a value that asks for nothing more than there is
    hints = 0
    for name in config:
        if name in own or name.startswith(CONNECTOR_PREFIXES) or _among(name, refusable):
            continue
        if _among(name, plugin.ignored):
            yield Problem(name, f"'{name}' has no effect: {plugin.name} does not need it")
            continue
        hints += 1
        near = nearest(name, own) if hints <= HINTS_MAX else None
        yield Problem(name, f"'{name}' is unknown and has no effect" + (f": did you mean '{near}'?" if near else ""))
