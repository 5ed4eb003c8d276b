"""Topics read from the bytes that consumers join with."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tidemill.broker.groups.subscription import subscribed_topics


def subscription(*topics: str, version: int = 3, rest: bytes = b"") -> bytes:
    names = b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in topics)
    return struct.pack(">hi", version, len(topics)) + names + rest


@given(st.lists(st.lists(st.text(max_size=5), max_size=4), max_size=3), st.binary(max_size=10))
def test_topics_of_all_members_together(subscriptions: list[list[str]], rest: bytes) -> None:
    found = subscribed_topics(subscription(*topics, rest=rest) for topics in subscriptions)
    assert found == {name for topics in subscriptions for name in topics}


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_not_readable(data: bytes) -> None:
    found = subscribed_topics([data])
    assert found is None or all(isinstance(name, str) for name in found)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"sub",
        subscription("orders")[:-1],
        struct.pack(">hi", 0, -1),
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hih", 0, 1, 1) + b"\xff",
    ],
)
def test_what_ends_too_early_or_is_no_text_cannot_be_read(data: bytes) -> None:
    assert subscribed_topics([subscription("t"), data]) is None


def test_what_kafka_python_sends_is_understood() -> None:
    assert subscribed_topics([RangePartitionAssignor.metadata({"orders", "käse"}).encode()]) == {"orders", "käse"}
