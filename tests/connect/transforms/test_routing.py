"""RegexRouter, TimestampRouter, TopicNameMatches: beyond what Kafka was asked (see test_registry)"""

import pytest

from tests.connect.transforms.options_of import made
from tidemill.connect.api import InvalidConfig


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("RegexRouter", {"regex": "(", "replacement": "x"}, "regex"),
        ("RegexRouter", {"regex": "x", "replacement": "$1"}, "replacement"),
        ("TopicNameMatches", {"pattern": "["}, "pattern"),
        ("TimestampRouter", {"timestamp_format": "ww"}, "timestamp.format"),
    ],
)
def test_the_option_that_is_wrong_is_named(name: str, options: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        made(name, **options)
    assert caught.value.field_name == field


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("RegexRouter", {"regex": "x", "replacement": "y"}),
        ("TimestampRouter", {}),
        ("TopicNameMatches", {"pattern": "x"}),
    ],
)
def test_topics_alone_need_neither_key_nor_value(name: str, options: dict[str, str]) -> None:
    part = made(name, **options)
    assert not part.uses_key and not part.uses_value
