"""Settings of a topic: what holds, and where it comes from."""

from dataclasses import replace

import pytest

from tidemill.broker.config import BROKER_CONFIG
from tidemill.broker.log.config import LogConfig
from tidemill.broker.topic_config import (
    TOPIC_CONFIG,
    ConfigSource,
    Layers,
    text_of,
    topic_problems,
    topic_settings,
    walk_topic,
    what_holds,
)

NOTHING = Layers(dynamic_broker={}, dynamic_default={}, static={})


def static(**settings: str) -> Layers:
    return Layers(
        dynamic_broker={}, dynamic_default={}, static={key.replace("_", "."): value for key, value in settings.items()}
    )


def test_without_any_setting_the_defaults_are_kafkas() -> None:
    settings = topic_settings({}, NOTHING)
    assert settings == {key.name: key.default for key in TOPIC_CONFIG}
    assert settings["retention.ms"] == 7 * 86_400_000
    assert LogConfig.of(settings) == LogConfig()


@pytest.mark.parametrize(
    ("layers", "overrides", "retention"),
    [
        (NOTHING, {"retention.ms": "5"}, 5),
        (static(log_retention_hours="1"), {}, 3_600_000),
        (static(log_retention_hours="1", log_retention_minutes="2"), {}, 120_000),
        (static(log_retention_minutes="2", log_retention_ms="7"), {}, 7),
        (static(log_retention_hours="-1"), {}, -1),
        (static(log_retention_ms="7"), {"retention.ms": "-1"}, -1),
        (Layers(dynamic_broker={"log.retention.ms": "9"}, dynamic_default={"log.retention.ms": "8"}, static={}), {}, 9),
        (Layers(dynamic_broker={}, dynamic_default={"log.retention.ms": "8"}, static={"log.retention.ms": "7"}), {}, 8),
    ],
)
def test_the_strongest_setting_holds(layers: Layers, overrides: dict[str, str], retention: int) -> None:
    assert topic_settings(overrides, layers)["retention.ms"] == retention


def test_what_holds_follows_every_change() -> None:
    dynamic: dict[str, str] = {}
    overrides: dict[str, str] = {}
    layers = Layers(dynamic_broker={}, dynamic_default=dynamic, static={"log.retention.ms": "7"})

    def held() -> tuple[object, ConfigSource]:
        assert what_holds(overrides, layers) == tuple(
            (key.name, walk_topic(key, overrides, layers)[0]) for key in TOPIC_CONFIG
        )
        found = dict(what_holds(overrides, layers))["retention.ms"]
        return found.value, found.source

    assert held() == (7, ConfigSource.STATIC_BROKER)
    dynamic["log.retention.ms"] = "8"
    assert held() == (8, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    overrides["retention.ms"] = "9"
    assert held() == (9, ConfigSource.TOPIC)
    overrides.clear()
    dynamic.clear()
    assert held() == (7, ConfigSource.STATIC_BROKER)


def test_the_default_of_a_cluster_is_the_weakest_value() -> None:
    key = BROKER_CONFIG["default.replication.factor"]
    layers = Layers(dynamic_broker={}, dynamic_default={}, static={}, spread={key.name: 3})
    assert [(step.value, step.source) for step in layers.walk(key)] == [(3, ConfigSource.DEFAULT)]
    given = replace(layers, static={key.name: "2"})
    assert [(step.value, step.source) for step in given.walk(key)] == [
        (2, ConfigSource.STATIC_BROKER),
        (3, ConfigSource.DEFAULT),
    ]


def test_the_walk_shows_every_setting_on_the_way() -> None:
    layers = Layers(dynamic_broker={"log.retention.ms": "9"}, dynamic_default={}, static={"log.retention.hours": "1"})
    walk = walk_topic(TOPIC_CONFIG["retention.ms"], {"retention.ms": "5"}, layers)
    assert [(step.name, step.given, step.value, step.source) for step in walk] == [
        ("retention.ms", 5, 5, ConfigSource.TOPIC),
        ("log.retention.ms", 9, 9, ConfigSource.DYNAMIC_BROKER),
        ("log.retention.hours", 1, 3_600_000, ConfigSource.STATIC_BROKER),
        ("log.retention.hours", 168, 604_800_000, ConfigSource.DEFAULT),
    ]


def test_keys_that_fall_back_share_type_default_and_liveliness_with_the_broker() -> None:
    settings = topic_settings({}, NOTHING)
    for key in TOPIC_CONFIG:
        walk = walk_topic(key, {}, NOTHING)
        default = walk[-1]
        assert default.source is ConfigSource.DEFAULT
        assert default.value == key.default == settings[key.name], key.name
        if default.name in BROKER_CONFIG:
            assert type(BROKER_CONFIG[default.name].default) is type(key.default), key.name


def test_problems_name_the_key_and_the_nearest_one() -> None:
    assert topic_problems({"retention.ms": "5", "cleanup.policy": "compact,delete"}) == ()
    problems = topic_problems({"retention.ms": "x", "cleanup.polcy": "compact", "remote.storage.enable": "true"})
    assert len(problems) == 3
    assert any("did you mean 'cleanup.policy'" in problem for problem in problems)


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (5, "5"), (0.5, "0.5"), (("a", "b"), "a,b"), ("x", "x"), (None, None), ((), "")]
)
def test_values_as_text(value: object, text: str | None) -> None:
    assert text_of(value) == text  # type: ignore[arg-type]
