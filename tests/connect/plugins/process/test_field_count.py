"""The fields of a message, counted in its bytes"""

from typing import Any

from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.field_count import PACKED_BYTES, fields, has_too_many


def counted(message: Message) -> int:
    """The same of a message that is there."""
    count = 0
    for field, value in message.ListFields():
        values: Any = value if not isinstance(value, (bytes, str, int, Message)) else [value]
        if hasattr(values, "items"):
            count += sum(1 + bool(name) + 1 for name in values)  # pairs are messages
        elif field.type in (field.TYPE_BYTES, field.TYPE_STRING):
            count += len(values)
        elif field.message_type is not None:
            count += len(values) + sum(map(counted, values))
        elif values is value:
            packed = type(message)(**{field.name: value}).ByteSize()
            count += 1 + (packed - (2 if packed < 130 else 3)) // PACKED_BYTES
        else:
            count += 1
    return count


batches = st.builds(
    pb.RecordBatch,
    topic=st.sampled_from(["", "t"]),
    keys=st.lists(st.binary(max_size=3), max_size=4),
    values=st.lists(st.binary(max_size=300), max_size=4),
    null_values=st.lists(st.integers(0, 300), max_size=40),
    headers=st.lists(
        st.builds(pb.Headers, headers=st.lists(st.builds(pb.Header, key=st.just("k"), value=st.binary(max_size=2))))
    ),
    timestamps_ms=st.lists(st.integers(-1, 1 << 50), max_size=20),
    source_offset=st.sampled_from(["", "{}"]),
)
messages = st.one_of(
    st.builds(pb.FromPlugin, polled=st.builds(pb.Polled, batches=st.lists(batches, max_size=3)), number=st.just(7)),
    st.builds(pb.FromPlugin, log=st.builds(pb.Log, message=st.text(max_size=200))),
)


@given(messages)
def test_all_are_counted_that_are_there(message: pb.FromPlugin) -> None:
    assert fields(message.SerializeToString(), pb.FromPlugin, 1_000_000) == counted(message)


@given(st.binary(max_size=40), st.integers(0, 9))
def test_whatever_the_bytes_are_they_have_some_number_of_fields(data: bytes, most: int) -> None:
    assert fields(data, pb.FromPlugin, most) >= 0


def test_a_few_large_ones_are_few() -> None:
    message = pb.FromPlugin(polled=pb.Polled(batches=[pb.RecordBatch(topic="t", values=[b"x" * 100] * 50)]))
    assert not has_too_many(message.SerializeToString(), pb.FromPlugin, 100)
    assert has_too_many(message.SerializeToString(), pb.FromPlugin, 50)


def test_numbers_in_a_row_are_many() -> None:
    message = pb.FromPlugin(polled=pb.Polled(batches=[pb.RecordBatch(timestamps_ms=[0] * 1_000)]))
    assert has_too_many(message.SerializeToString(), pb.FromPlugin, 200)
