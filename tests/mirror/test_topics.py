"""Plans for topics and their settings."""

from tidemill.core.client.admin import DEFAULT_CONFIG_SOURCE, TOPIC_CONFIG_SOURCE, ConfigEntry
from tidemill.core.client.metadata import ClusterView, PartitionView, TopicView
from tidemill.mirror.naming import DefaultPolicy
from tidemill.mirror.selection import NameFilter, TopicSelection
from tidemill.mirror.topics import carried_configs, config_changes, plan_topics, replication_factor, target_warnings

NOTHING = NameFilter.of((), ())
EXCLUDE = NameFilter.of((r"min\.insync\.replicas",), ())


def cluster(**topics: int) -> ClusterView:
    return ClusterView(
        topics={
            name.replace("__", "."): TopicView(
                name=name, partitions={number: PartitionView(leader=1) for number in range(count)}
            )
            for name, count in topics.items()
        }
    )


def entry(
    name: str, value: str | None, *, default: bool = False, read_only: bool = False, sensitive: bool = False
) -> ConfigEntry:
    source = DEFAULT_CONFIG_SOURCE if default else TOPIC_CONFIG_SOURCE
    return ConfigEntry(name=name, value=value, source=source, read_only=read_only, sensitive=sensitive)


def test_missing_topics_are_created_and_small_ones_grown() -> None:
    selection = TopicSelection(policy=DefaultPolicy(), topics=NameFilter.of((".*",), ("secret",)), target_alias="B")
    source = cluster(new=3, small=4, same=2, secret=1, B__mine=1, shrunk=1)
    target = cluster(A__small=2, A__same=2, A__shrunk=5)
    plan = plan_topics(source, target, selection, DefaultPolicy(), "A")
    assert plan.pairs == {"new": "A.new", "small": "A.small", "same": "A.same", "shrunk": "A.shrunk"}
    assert plan.create == {"new": 3}
    assert plan.grow == {"A.small": 4}
    assert plan.shrunk == ("shrunk",)


def test_only_settings_somebody_made_are_carried() -> None:
    entries = [
        entry("cleanup.policy", "compact"),
        entry("retention.ms", "604800000", default=True),
        entry("min.insync.replicas", "2"),
        entry("broker.only", "x", read_only=True),
        entry("password", "x", sensitive=True),
        entry("unset", None),
    ]
    assert carried_configs(entries, EXCLUDE, defaults_too=False) == {"cleanup.policy": "compact"}
    assert carried_configs(entries, NOTHING, defaults_too=True) == {
        "cleanup.policy": "compact",
        "retention.ms": "604800000",
        "min.insync.replicas": "2",
    }


def test_differences_are_set_and_leftovers_go_back_to_default() -> None:
    source = [entry("retention.ms", "5"), entry("segment.ms", "1", default=True), entry("cleanup.policy", "compact")]
    target = [
        entry("retention.ms", "9"),
        entry("segment.ms", "7"),
        entry("cleanup.policy", "compact"),
        entry("min.insync.replicas", "3"),
    ]
    assert config_changes(source, target, EXCLUDE, defaults_too=False) == {"retention.ms": "5", "segment.ms": None}
    assert config_changes(source, target, EXCLUDE, defaults_too=True) == {"retention.ms": "5", "segment.ms": "1"}
    assert config_changes(source, source, EXCLUDE, defaults_too=False) == {}


def test_replicas_are_bounded_by_the_brokers() -> None:
    assert [replication_factor(3, nodes) for nodes in (0, 1, 2, 5)] == [1, 1, 2, 3]


def test_settings_that_spoil_a_copy_are_named() -> None:
    assert target_warnings("t", [entry("compression.type", "producer", default=True)]) == []
    late, recoded = target_warnings(
        "t", [entry("message.timestamp.type", "LogAppendTime"), entry("compression.type", "gzip")]
    )
    assert "lose the source's timestamps" in late
    assert "compression.type=gzip" in recoded
