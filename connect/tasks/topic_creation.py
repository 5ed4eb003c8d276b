"""The topics a source may create: Kafka Connect's `topic.creation.*` rules

With `topic.creation.default.replication.factor` and `.partitions` set, the source creates a missing topic itself,
with the settings of the first group whose patterns match and the default group's for the rest. Without them the
broker creates topics by its own rules, or refuses.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "topic.creation."


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecipe:
    """How to create one topic; -1 leaves a number to the broker."""

    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    name: str
    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]
    settings: Mapping[str, str]

    def takes(self, topic: str) -> bool:
        """Whether the group's patterns match the whole name."""
        return any(each.fullmatch(topic) for each in self.include) and not any(
            each.fullmatch(topic) for each in self.exclude
        )


class TopicCreation:
    """The groups of one connector, in order; empty when the connector creates no topics."""

    def __init__(self, config: Mapping[str, str]) -> None:
        names = [name.strip() for name in config.get(PREFIX + "groups", "").split(",") if name.strip()]
        default = _settings(config, "default")
        self.enabled = "partitions" in default and "replication.factor" in default
        self._default = default
        self._groups = [_group(config, name) for name in names if name != "default"]

    def recipe(self, topic: str) -> TopicRecipe:
        """The settings of the first group that takes the topic, over those of the default group."""
        settings = dict(self._default)
        for group in self._groups:
            if group.takes(topic):
                # A group's own settings stand alone, but for the two numbers that it may leave to the default.
                settings = {name: self._default[name] for name in ("partitions", "replication.factor")}
                settings |= group.settings
                break
        partitions, factor = int(settings.pop("partitions")), int(settings.pop("replication.factor"))
        return TopicRecipe(partitions=partitions, replication_factor=factor, config=settings)


def _settings(config: Mapping[str, str], group: str) -> dict[str, str]:
    prefix = f"{PREFIX}{group}."
    return {
        name.removeprefix(prefix): value
        for name, value in config.items()
        if name.startswith(prefix) and name.removeprefix(prefix) not in ("include", "exclude")
    }


def _group(config: Mapping[str, str], name: str) -> _Group:
    def patterns(member: str) -> tuple[re.Pattern[str], ...]:
        given = config.get(f"{PREFIX}{name}.{member}", "")
        return tuple(re.compile(each.strip()) for each in given.split(",") if each.strip())

    return _Group(name=name, include=patterns("include"), exclude=patterns("exclude"), settings=_settings(config, name))
