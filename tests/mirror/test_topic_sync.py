"""Topics of the target follow those of the source."""

from collections.abc import Sequence

import pytest

from tests.mirror.conftest import Pair
from tidemill.core.client.admin import Admin, ConfigEntry, NewTopic
from tidemill.core.errors import KafkaError, RequestTimedOut
from tidemill.mirror.topic_sync import TopicSync

pytestmark = pytest.mark.integration


async def settings(pair: Pair) -> dict[str, str | None]:
    entries = (await Admin(pair.target).topic_configs([pair.remote]))[pair.remote]
    return {entry.name: entry.value for entry in entries if not entry.is_default}


async def test_created_with_partitions_and_settings(pair: Pair) -> None:
    await pair.create(partitions=3, cleanup_policy="compact", min_insync_replicas="1")
    sync = TopicSync(pair.config().flow("A", "B"), pair.source, pair.target)
    assert await sync.refresh() == {pair.topic: pair.remote}
    assert len(pair.target.view.topics[pair.remote].partitions) == 3
    assert await settings(pair) == {"cleanup.policy": "compact"}, "min.insync.replicas is on the exclude list"


async def test_grown_and_never_shrunk(pair: Pair) -> None:
    await pair.create(partitions=1)
    sync = TopicSync(pair.config().flow("A", "B"), pair.source, pair.target)
    await sync.refresh()
    await Admin(pair.source).create_partitions({pair.topic: 4})
    await sync.refresh()
    assert len(pair.target.view.topics[pair.remote].partitions) == 4
    await Admin(pair.target).create_partitions({pair.remote: 6})
    await sync.refresh()
    assert len(pair.target.view.topics[pair.remote].partitions) == 6


async def test_changed_settings_are_carried(pair: Pair) -> None:
    await pair.create(retention_ms="1000")
    sync = TopicSync(pair.config().flow("A", "B"), pair.source, pair.target)
    await sync.refresh()
    await Admin(pair.source).alter_topic_configs({pair.topic: {"retention.ms": "2000", "segment.bytes": "1048576"}})
    await sync.sync_configs()
    assert await settings(pair) == {"retention.ms": "2000", "segment.bytes": "1048576"}
    await Admin(pair.source).alter_topic_configs({pair.topic: {"retention.ms": None}})
    await sync.sync_configs()
    assert await settings(pair) == {"segment.bytes": "1048576"}


async def test_a_setting_the_target_does_not_know_holds_up_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.create(retention_ms="1000")
    asked = Admin.topic_configs

    async def with_a_stranger(self: Admin, names: Sequence[str]) -> dict[str, tuple[ConfigEntry, ...]]:
        found = await asked(self, names)
        stranger = ConfigEntry(name="future.setting", value="1", source=1, read_only=False, sensitive=False)
        return {name: (*rows, stranger) if name == pair.topic else rows for name, rows in found.items()}

    monkeypatch.setattr(Admin, "topic_configs", with_a_stranger)
    sync = TopicSync(pair.config().flow("A", "B"), pair.source, pair.target)
    await sync.refresh()
    await Admin(pair.source).alter_topic_configs({pair.topic: {"segment.bytes": "1048576"}})
    await sync.sync_configs()
    assert await settings(pair) == {"retention.ms": "1000", "segment.bytes": "1048576"}


async def test_what_cannot_be_created_is_named_until_a_look_finds_it_mended(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the next look is under way, and after one that came to nothing."""
    long = pair.topic.ljust(249, "x")  # with the prefix it is longer than a name may be
    await Admin(pair.source).create_topics([NewTopic(name=long, partitions=1)])
    sync = TopicSync(pair.config(f"topics = {long}\n").flow("A", "B"), pair.source, pair.target)
    await sync.refresh()
    assert list(sync.problems) == [f"A.{long}"]
    meanwhile: list[list[str]] = []

    async def away(self: Admin, topics: Sequence[NewTopic]) -> dict[str, KafkaError | None]:
        meanwhile.append(list(sync.problems))
        raise RequestTimedOut("nobody answers")

    with monkeypatch.context() as patched:
        patched.setattr(Admin, "create_topics", away)
        with pytest.raises(RequestTimedOut):
            await sync.refresh()
    assert meanwhile == [[f"A.{long}"]]
    assert list(sync.problems) == [f"A.{long}"], "whoever looks for what to try again finds it"
    await Admin(pair.source).delete_topics([long])
    await sync.refresh()
    assert not sync.problems


def test_fewer_brokers_than_replicas(pair: Pair) -> None:
    sync = TopicSync(pair.config().flow("A", "B"), pair.source, pair.target)
    assert sync.factor("x", 3, 1) == 1
    assert sync.factor("x", 2, 5) == 2
