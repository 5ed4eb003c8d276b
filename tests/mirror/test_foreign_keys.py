"""Keys of others: harmless, refused with a reason, or unknown."""

import pytest

from tidemill.mirror.foreign_keys import judge, without_role


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tasks.max", "10"),
        ("offset.storage.replication.factor", "1"),
        ("consumer.fetch.min.bytes", "1"),
        ("source.consumer.client.id", "x"),
        ("producer.batch.size", "1"),
        ("inter.worker.signature.algorithm", "HmacSHA256"),
        ("topic.filter.class", "org.apache.kafka.connect.mirror.DefaultTopicFilter"),
        ("key.converter", "org.apache.kafka.connect.converters.ByteArrayConverter"),
        ("sync.topic.acls.enabled", "False"),
        ("producer.compression.type", "none"),
    ],
)
def test_harmless(key: str, value: str) -> None:
    assert judge(key, value) == ""


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("topic.filter.class", "com.example.Mine", "`topics.exclude`"),
        ("group.filter.class", "com.example.Mine", "`groups.exclude`"),
        ("config.property.filter.class", "com.example.Mine", "`config.properties.exclude`"),
        ("sync.topic.acls.enabled", "true", "set it to false"),
        ("transforms", "a,b", "remove it"),
        ("predicates.a.type", "x", "remove it"),
        ("key.converter", "org.apache.kafka.connect.json.JsonConverter", "nothing is converted"),
        ("errors.tolerance", "all", "no record is ever left out"),
        ("config.providers", "file", "write them out"),
        ("config.providers.file.class", "x", "write them out"),
        ("topics.blacklist", "x", "`topics.exclude`"),
        ("producer.compression.type", "zstd", "compression.type of the target"),
        ("consumer.interceptor.classes", "x", "nothing intercepts"),
    ],
)
def test_refused_with_what_to_do(key: str, value: str, remedy: str) -> None:
    assert remedy in (judge(key, value) or "")


def test_unknown() -> None:
    assert judge("topcs", "x") is None
    assert judge("consumer.fetch.mini.bytes", "1") is None


def test_a_role_is_taken_off_once() -> None:
    assert without_role("consumer.consumer.x") == "consumer.x"
    assert without_role("refresh.topics.enabled") == "refresh.topics.enabled"
