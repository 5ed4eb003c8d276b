"""The judgement on configurations, with plugins made for the purpose"""

import asyncio
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import pytest
from pydantic import AliasChoices, BaseModel, Field, SecretStr, field_validator, model_validator
from structlog.testing import capture_logs

from tidemill.connect.api import InvalidConfig, Plugin, PluginKind, SinkTask, Unsupported
from tidemill.connect.entities import ConfigInfo, ConfigInfos, body
from tidemill.connect.task_spec import SettingProblem
from tidemill.connect.validation import Surroundings, Validator, key_infos
from tidemill.core.config import nearest


class Mode(enum.Enum):
    FAST = "fast"
    SAFE = "safe"


class Settings(BaseModel):
    host: str = Field(
        description="Where", alias="database.host", json_schema_extra={"group": "Connection", "width": "long"}
    )
    port: int = Field(5432, ge=1, alias="database.port", json_schema_extra={"group": "Connection", "importance": "low"})
    password: SecretStr = Field(SecretStr("secret"), alias="database.password")
    tables: list[str] = Field(default_factory=list, title="Tables")
    mode: Mode = Mode.SAFE
    level: Literal["a", "b"] | None = None
    ratio: float = 0.5
    loud: bool = False
    old: str = Field("x", validation_alias=AliasChoices("new.name", "old.name"))

    @field_validator("host")
    @classmethod
    def no_spaces(cls, host: str) -> str:
        if " " in host:
            raise ValueError("a host has no spaces")
        return host

    @model_validator(mode="after")
    def together(self) -> "Settings":
        if self.loud and self.mode is Mode.FAST:
            raise ValueError("loud and fast exclude each other")
        return self


def never(settings: Any) -> SinkTask:
    raise AssertionError("never started here")


def plugin(kind: PluginKind = PluginKind.SOURCE, **more: Any) -> Plugin:
    fields: dict[str, Any] = {"name": "Test", "version": "1", "config": Settings, "task": never, **more}
    return Plugin(kind=kind, **fields)


async def content(plugin: Plugin, config: Mapping[str, str]) -> Sequence[SettingProblem]:
    return []


def validator(check: Any = content, policy: str = "All", timeout_s: float = 5.0) -> Validator:
    return Validator(Surroundings(group_id="workers", override_policy=policy, check=check, check_timeout_s=timeout_s))


GOOD = {"name": "c", "connector.class": "Test", "database.host": "db"}


async def judge(more: Mapping[str, str | None], subject: Plugin | None = None, **how: Any) -> ConfigInfos:
    return await validator(**how).validate(subject or plugin(), {**GOOD, **more})


def entry(infos: ConfigInfos, name: str) -> ConfigInfo:
    (found,) = [info for info in infos.configs if info.value.name == name]
    return found


async def test_a_good_configuration() -> None:
    infos = await judge({})
    assert infos.error_count == 0 and infos.problems() == []
    assert infos.name == "Test"
    assert infos.groups[0] == "Common" and infos.groups[-1] == "Connection"
    assert entry(infos, "tasks.max").value.value == "1"
    assert entry(infos, "name").definition is not None


def test_definitions_come_from_the_model() -> None:
    infos = {info.name: info for info in key_infos(plugin())}
    assert list(infos) == [
        "database.host",
        "database.port",
        "database.password",
        "tables",
        "mode",
        "level",
        "ratio",
        "loud",
        "new.name",
    ]
    host, port = infos["database.host"], infos["database.port"]
    assert (host.type, host.required, host.default_value, host.importance) == ("STRING", True, None, "HIGH")
    assert (host.group, host.order_in_group, host.width, host.documentation) == ("Connection", 1, "LONG", "Where")
    assert (port.type, port.required, port.default_value, port.importance) == ("LONG", False, "5432", "LOW")
    assert (port.order_in_group, port.width, port.display_name) == (2, "NONE", "database.port")
    assert (infos["database.password"].type, infos["database.password"].default_value) == ("PASSWORD", "[hidden]")
    assert (infos["tables"].type, infos["tables"].default_value, infos["tables"].display_name) == ("LIST", "", "Tables")
    assert (infos["mode"].type, infos["mode"].default_value) == ("STRING", "safe")
    assert (infos["ratio"].type, infos["ratio"].default_value) == ("DOUBLE", "0.5")
    assert (infos["loud"].type, infos["loud"].default_value) == ("BOOLEAN", "false")
    assert infos["loud"].order_in_group == -1 and infos["loud"].group is None


async def test_choices_are_recommended() -> None:
    infos = await judge({})
    assert entry(infos, "mode").value.recommended_values == ("fast", "safe")
    assert entry(infos, "level").value.recommended_values == ("a", "b")
    assert "org.apache.kafka.connect.json.JsonConverter" in entry(infos, "key.converter").value.recommended_values


@pytest.mark.parametrize(
    ("more", "name", "text"),
    [
        ({"tasks.max": "0"}, "tasks.max", "Invalid value 0 for configuration tasks.max: Value must be at least 1"),
        ({"tasks.max": "x"}, "tasks.max", "Invalid value x for configuration tasks.max: Not a number of type INT"),
        ({"name": ""}, "name", "Invalid value  for configuration name: String may not be empty"),
        ({"name": "a\nb"}, "name", "control"),
        ({"key.converter": "Avro"}, "key.converter", "Class Avro could not be found"),
        ({"header.converter": "Avro"}, "header.converter", "Class Avro could not be found"),
        ({"errors.tolerance": "some"}, "errors.tolerance", "String must be one of: none, all"),
        ({"database.port": "0"}, "database.port", "Invalid value 0 for configuration database.port: "),
        ({"database.port": "x"}, "database.port", "Invalid value x for configuration database.port: "),
        ({"database.host": "a b"}, "database.host", "database.host: a host has no spaces"),
        ({"mode": "slow"}, "mode", "Invalid value slow for configuration mode"),
        ({"loud": "true", "mode": "fast"}, "connector.class", "loud and fast exclude each other"),
        ({"database.port": None}, "database.port", "Null value can not be supplied as the configuration value."),
        ({"unheard.of": None}, "unheard.of", "Null value can not be supplied as the configuration value."),
        ({"transforms": "a"}, "transforms.a.type", 'Missing required configuration "transforms.a.type"'),
        ({"predicates": "p", "predicates.p.type": "x"}, "predicates.p.type", "Class x could not be found."),
        ({"exactly.once.support": "required"}, "exactly.once.support", "not supported yet"),
        ({"transaction.boundary": "connector"}, "transaction.boundary", "not supported yet"),
        ({"offsets.storage.topic": "t"}, "offsets.storage.topic", "not supported yet"),
        ({"database.password": "${file:/x:pw}"}, "database.password", "refers to the config provider 'file'"),
        ({"connector.plugin.version": "7"}, "connector.plugin.version", "Version 7 of Test is not installed"),
        ({"connector.plugin.version": "[7,"}, "connector.plugin.version", "'[7,' is neither a version nor a range of"),
        ({"key.converter.plugin.version": "4.1"}, "key.converter.plugin.version", "converters are part of the worker"),
        (
            {"header.converter.plugin.version": "4"},
            "header.converter.plugin.version",
            "=4 is not supported: converters",
        ),
        ({"key.converter": "json", "key.converter.schemas.enable": "maybe"}, "key.converter", "neither true nor false"),
    ],
)
async def test_what_is_wrong_is_said_where_it_is_wrong(more: dict[str, str | None], name: str, text: str) -> None:
    infos = await judge(more)
    assert infos.error_count == 1, infos.problems()
    assert text in entry(infos, name).value.errors[0]


async def test_a_chain_is_listed_as_connect_lists_it() -> None:
    package = "org.apache.kafka.connect.transforms."
    chain = {
        "transforms": "a",
        "transforms.a.type": f"{package}RegexRouter",
        "transforms.a.regex": "x",
        "transforms.a.replacement": "y",
        "predicates": "p",
        "predicates.p.type": "HasHeaderKey",
        "predicates.p.name": "h",
    }
    infos = await judge(chain)
    assert infos.error_count == 0 and infos.warning_count is None
    assert {"Transforms: a", "Predicates: p"} <= set(infos.groups)
    shown = {
        info.value.name: (info.definition.type, info.definition.order_in_group, info.definition.display_name)
        for info in infos.configs
        if info.definition is not None and info.definition.group in ("Transforms: a", "Predicates: p")
    }
    assert shown == {
        "transforms.a.type": ("CLASS", 0, "Transformation type for a"),
        "transforms.a.plugin.version": ("STRING", 1, "Transformation version for a"),
        "transforms.a.regex": ("STRING", 2, "regex"),
        "transforms.a.replacement": ("STRING", 3, "replacement"),
        "transforms.a.negate": ("BOOLEAN", 4, "negate"),
        "transforms.a.predicate": ("STRING", 5, "predicate"),
        "predicates.p.type": ("CLASS", 0, "Predicate type for p"),
        "predicates.p.plugin.version": ("STRING", 1, "Predicate version for p"),
        "predicates.p.name": ("STRING", 2, "name"),
    }
    assert len(entry(infos, "transforms.a.type").value.recommended_values) == 29
    assert entry(infos, "transforms.a.negate").value.value == "false"
    assert [entry(infos, name).value.value for name in chain] == list(chain.values())


async def test_what_is_missing_is_said_in_connects_words() -> None:
    infos = await validator().validate(plugin(), {"connector.class": "Test"})
    assert infos.problems() == [
        'Missing required configuration "name" which has no default value.',
        'Missing required configuration "database.host" which has no default value.',
    ]


async def test_passwords_are_hidden_also_in_complaints() -> None:
    class Picky(BaseModel):
        token: SecretStr = Field(min_length=20)

    infos = await judge({"token": "hunter2"}, plugin(config=Picky))
    assert infos.error_count == 1
    assert "hunter2" not in str(infos)
    assert entry(infos, "token").value.value == "[hidden]"
    assert entry(await judge({"database.password": "hunter2"}), "database.password").value.value == "[hidden]"


@pytest.mark.parametrize(
    ("more", "names", "text"),
    [
        ({}, ["topics", "topics.regex"], "Must configure one of topics or topics.regex"),
        ({"topics": " , "}, ["topics", "topics.regex"], "Must configure one of topics or topics.regex"),
        ({"topics": "a", "topics.regex": "b"}, ["topics", "topics.regex"], "mutually exclusive"),
        ({"topics.regex": "("}, ["topics.regex"], "not a regular expression"),
        ({"topics": "a,b", "errors.deadletterqueue.topic.name": "b"}, ["topics"], "The DLQ topic 'b' may not be"),
        ({"topics": "a", "consumer.override.group.id": " "}, ["consumer.override.group.id"], "must not be empty"),
        (
            {"topics": "a", "consumer.override.group.id": "workers"},
            ["consumer.override.group.id"],
            "Consumer group workers conflicts with Connect worker group workers",
        ),
    ],
)
async def test_rules_for_sinks(more: dict[str, str], names: list[str], text: str) -> None:
    infos = await judge(more, plugin(PluginKind.SINK))
    assert [info.value.name for info in infos.configs if info.value.errors] == names
    assert all(text in problem for problem in infos.problems())


async def test_a_sink_whose_own_group_is_the_workers() -> None:
    infos = await judge({"name": "cluster", "topics": "a"}, plugin(PluginKind.SINK))
    assert infos.error_count == 0
    around = Surroundings(group_id="connect-cluster", override_policy="All", check=content, check_timeout_s=1)
    config = {**GOOD, "name": "cluster", "topics": "a"}
    clash = await Validator(around).validate(plugin(PluginKind.SINK), config)
    assert "conflicts with Connect worker group" in entry(clash, "name").value.errors[0]


@pytest.mark.parametrize(
    ("policy", "refused"),
    [("All", set()), ("None", {"a", "m"}), ("Principal", {"a"})],
)
async def test_the_policy_decides_about_client_overrides(policy: str, refused: set[str]) -> None:
    settings = {"a": "producer.override.acks", "m": "producer.override.sasl.mechanism"}
    infos = await judge(dict.fromkeys(settings.values(), "1"), policy=policy)
    assert {info.value.name for info in infos.configs if info.value.errors} == {settings[each] for each in refused}


async def test_the_preflight_speaks_last() -> None:
    asked: list[Mapping[str, str]] = []

    async def check(subject: Plugin, config: Mapping[str, str]) -> Sequence[SettingProblem]:
        asked.append(config)
        return [SettingProblem("database.host", "cannot connect"), SettingProblem("", "not today")]

    subject = plugin(check=lambda settings: None)
    infos = await judge({"tasks.max": "0"}, subject, check=check)
    assert not asked and infos.error_count == 1
    infos = await judge({}, subject, check=check)
    assert entry(infos, "database.host").value.errors == ("cannot connect",)
    assert entry(infos, "connector.class").value.errors == ("not today",)
    assert (await judge({}, plugin(), check=check)).error_count == 0  # nothing to check


async def test_a_preflight_that_hangs_is_an_error_after_its_deadline() -> None:
    async def hang(subject: Plugin, config: Mapping[str, str]) -> Sequence[SettingProblem]:
        await asyncio.Event().wait()
        return []

    infos = await judge({}, plugin(check=lambda settings: None), check=hang, timeout_s=0.01)
    assert "gave no answer" in entry(infos, "connector.class").value.errors[0]


async def test_a_model_that_breaks_is_the_configurations_problem() -> None:
    class Broken(BaseModel):
        x: str = "1"

        @model_validator(mode="before")
        @classmethod
        def explode(cls, data: Any) -> Any:
            raise RuntimeError("a bug")

    class Refusing(BaseModel):
        x: str = "1"

        @model_validator(mode="before")
        @classmethod
        def refuse(cls, data: Any) -> Any:
            raise InvalidConfig("x", "no good")

    assert "RuntimeError: a bug" in (await judge({}, plugin(config=Broken))).problems()[0]
    assert entry(await judge({}, plugin(config=Refusing)), "x").value.errors == ("no good",)


IN_VAIN = {
    "database.hots": "'database.hots' is unknown and has no effect: did you mean 'database.host'?",
    "hsot": "'hsot' is unknown and has no effect",
    "history.file": "'history.file' has no effect: Test does not need it",
    "signal.data": "'signal.data' has no effect: Test does not need it",
    "producer.override.nonsense": "'producer.override.nonsense' has no effect: librdkafka has no such setting",
    "transforms.a.type": "'transforms.a.type' has no effect: 'transforms' does not list 'a'",
    "value.converter.schemas.enabled": "'value.converter.schemas.enabled' has no effect: the string converter knows "
    "value.converter.converter.encoding",
}


async def test_settings_in_vain_are_warnings_in_the_answer_and_logged_once() -> None:
    subject = plugin(ignored=("history.file", "signal."))
    checker = validator()
    config = {**GOOD, **dict.fromkeys(IN_VAIN, "x"), "value.converter": "string"}
    with capture_logs() as lines:
        for _ in range(2):
            infos = await checker.validate(subject, config)
    assert infos.error_count == 0 and infos.warning_count == len(IN_VAIN)
    assert {name: entry(infos, name).value.warnings for name in IN_VAIN} == {
        name: (text,) for name, text in IN_VAIN.items()
    }
    assert {line["setting"]: line["warning"] for line in lines} == IN_VAIN and len(lines) == len(IN_VAIN)
    assert {problem.setting: problem.text for problem in checker.warnings(subject, config)} == IN_VAIN


async def test_without_warnings_the_answer_has_connects_fields_only() -> None:
    content = body(await judge({}))
    assert set(content) == {"name", "error_count", "groups", "configs"}
    assert set(content["configs"][0]["value"]) == {"name", "value", "recommended_values", "errors", "visible"}
    warned = body(await judge({"database.hots": "x"}))
    assert warned["warning_count"] == 1
    (value,) = [each["value"] for each in warned["configs"] if each["value"]["name"] == "database.hots"]
    assert value["errors"] == [] and len(value["warnings"]) == 1


async def test_settings_that_may_not_be_ignored_are_refused_by_name() -> None:
    subject = plugin(
        unsupported=(
            Unsupported(name="mask.", why="nothing would be masked; remove it"),
            Unsupported(name="naming", why="names stay", accepted=("plain",)),
        )
    )
    infos = await judge({"mask.ssn": "x", "naming": "fancy"}, subject)
    assert infos.error_count == 2
    assert entry(infos, "mask.ssn").value.errors == ("mask.ssn is not supported: nothing would be masked; remove it",)
    assert entry(infos, "naming").value.errors == ("naming is not supported but for naming=plain: names stay",)
    assert (await judge({"mask.ssn": "", "naming": "Plain", "masked": "x"}, subject)).error_count == 0


async def test_a_second_spelling_is_known() -> None:
    with capture_logs() as lines:
        assert (await judge({"old.name": "1"})).error_count == 0
    assert lines == []


async def test_thousands_of_unknown_settings_cost_what_they_weigh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints and log lines are for people: a few are enough, of however many settings that nobody knows."""
    looked_up: list[str] = []

    def counted(name: str, known: Iterable[str]) -> str | None:
        looked_up.append(name)
        return nearest(name, known)

    monkeypatch.setattr("tidemill.connect.validation.nearest", counted)
    around = Surroundings(group_id="workers", override_policy="All", check=lambda *_: content(*_), check_timeout_s=1)
    validator = Validator(around)
    with capture_logs() as lines:
        for life in range(20):
            config = {"name": "c", "connector.class": "Test", "database.host": "h"}
            unknown = {f"databse.hots{life}-{number}": "x" for number in range(500)}
            infos = await validator.validate(plugin(), config | unknown)
            assert infos.warning_count == 500 and infos.error_count == 0
    assert len(looked_up) <= 20 * 50 and len(lines) <= 1_000


async def test_a_limit_of_processors_is_refused_where_nobody_would_keep_it() -> None:
    async def judged(no_cgroups: str, cores: str) -> list[str]:
        around = Surroundings(
            group_id="workers", override_policy="All", check=content, check_timeout_s=1, no_cgroups=no_cgroups
        )
        infos = await Validator(around).validate(plugin(), {**GOOD, "task.cpu.max.cores": cores})
        return [error for info in infos.configs for error in info.value.errors]

    (refusal,) = await judged("the worker is not alone", "0.5")
    assert refusal.startswith(
        "task.cpu.max.cores cannot be kept by this worker: the worker is not alone. Remove it, or"
    )
    assert "Delegate=cpu memory" in refusal
    assert await judged("the worker is not alone", "0") == []
    assert await judged("", "0.5") == []
    assert await judged("", "-1") == [
        "Invalid value -1 for configuration task.cpu.max.cores: Value must be 0, for all there are, or at least 0.01"
    ]
