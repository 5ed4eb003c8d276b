"""Which topics to create, grow and set up on the target

Pure: compares pictures of the two clusters and names the differences. A topic is created with the partition count and
the non-default settings of its source, partition counts only grow, and nothing is ever deleted. Settings follow
MirrorMaker 2: what the source leaves at its default goes back to the target's default, unless `use.defaults.from` is
`source`, in which case the source's default is written out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemill.core.client.admin import ConfigEntry
from tidemill.core.client.metadata import ClusterView
from tidemill.mirror.naming import ReplicationPolicy
from tidemill.mirror.selection import NameFilter, TopicSelection


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """What one look at both clusters calls for."""

    pairs: Mapping[str, str]  # source topic -> target topic, of everything the flow carries
    create: Mapping[str, int]  # source topic -> partitions, of those the target does not have
    grow: Mapping[str, int]  # target topic -> partitions it should have
    shrunk: tuple[str, ...]  # source topics with fewer partitions than their copy


def plan_topics(
    source: ClusterView, target: ClusterView, selection: TopicSelection, policy: ReplicationPolicy, source_alias: str
) -> TopicPlan:
    """Compare two pictures."""
    pairs = {name: policy.format_remote_topic(source_alias, name) for name in source.topics if selection.takes(name)}
    create: dict[str, int] = {}
    grow: dict[str, int] = {}
    shrunk: list[str] = []
    for name, remote in pairs.items():
        wanted = len(source.topics[name].partitions)
        if remote not in target.topics:
            create[name] = wanted
        elif len(target.topics[remote].partitions) < wanted:
            grow[remote] = wanted
        elif len(target.topics[remote].partitions) > wanted:
            shrunk.append(name)
    return TopicPlan(pairs=pairs, create=create, grow=grow, shrunk=tuple(shrunk))


def carried_configs(entries: Iterable[ConfigEntry], exclude: NameFilter, defaults_too: bool) -> dict[str, str]:
    """Settings of a source topic to write on its copy."""
    return {
        entry.name: entry.value
        for entry in entries
        if entry.value is not None and (defaults_too or not entry.is_default) and _may_carry(entry, exclude)
    }


def config_changes(
    source: Iterable[ConfigEntry], target: Iterable[ConfigEntry], exclude: NameFilter, defaults_too: bool
) -> dict[str, str | None]:
    """What to change on the copy so that it is set up as its source; None takes a setting back to its default."""
    wanted = carried_configs(source, exclude, defaults_too)
    present = {entry.name: entry for entry in target}
    changes: dict[str, str | None] = {
        name: value for name, value in wanted.items() if name not in present or present[name].value != value
    }
    for name, entry in present.items():
        if name not in wanted and not entry.is_default and _may_carry(entry, exclude):
            changes[name] = None
    return changes


def _may_carry(entry: ConfigEntry, exclude: NameFilter) -> bool:
    return not entry.read_only and not entry.sensitive and not exclude.accepts(entry.name)


def replication_factor(wanted: int, nodes: int) -> int:
    """The wanted number of replicas, or as many as there are brokers.

    >>> replication_factor(3, 1), replication_factor(2, 5)
    (1, 2)
    """
    return max(1, min(wanted, nodes))


def target_warnings(topic: str, entries: Iterable[ConfigEntry]) -> list[str]:
    """Settings of a copy that keep it from being one."""
    values = {entry.name: entry.value for entry in entries}
    found = []
    if values.get("message.timestamp.type") == "LogAppendTime":
        found.append(f"{topic} has message.timestamp.type=LogAppendTime: its records lose the source's timestamps")
    codec = values.get("compression.type", "producer")
    if codec not in (None, "producer"):
        found.append(f"{topic} has compression.type={codec}: the target recompresses every batch of another codec")
    return found
