"""Columns of the protocol, and what the runtime has"""

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import EncodedBatch, Record
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.batches import PUT_BYTES_MAX, encoded, encoded_all, octets, puts


def test_a_batch_with_everything() -> None:
    headers = [pb.Headers(), pb.Headers(headers=[pb.Header(key="h", value=b"1"), pb.Header(key="none")])]
    batch = pb.RecordBatch(
        topic="t",
        keys=[b"a", b""],
        values=[b"", b"b"],
        null_keys=[1],
        null_values=[0],
        headers=headers,
        timestamps_ms=[0, 1_700_000_000_000],
        source_partition='{"p":1}',
        source_offset='{"o":2}',
    )
    assert encoded(batch) == EncodedBatch(
        topic="t",
        keys=[b"a", None],
        values=[None, b"b"],
        headers=[(), (("h", b"1"), ("none", None))],
        timestamps_ms=[0, 1_700_000_000_000],
        partition={"p": 1},
        offset={"o": 2},
    )


def test_without_keys_all_are_null() -> None:
    assert encoded(pb.RecordBatch(topic="t", values=[b"a", b"b"])) == EncodedBatch(
        topic="t", keys=[None, None], values=[b"a", b"b"], headers=[], timestamps_ms=[]
    )


def test_too_many_at_once() -> None:
    one = pb.RecordBatch(topic="t", values=[b""])
    assert len(encoded_all([one, one])) == 2
    with pytest.raises(ValueError, match="100002 records in 2 batches at once, of 100000 at most"):
        encoded_all([pb.RecordBatch(topic="t", values=[b""] * 50_001)] * 2)
    with pytest.raises(ValueError, match="0 records in 100001 batches"):
        encoded_all([pb.RecordBatch()] * 100_001)


def test_an_offset_alone_moves_on() -> None:
    batch = encoded(pb.RecordBatch(topic="t", source_partition="{}", source_offset='{"o":1}'))
    assert (list(batch.values), batch.offset) == ([], {"o": 1})


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        ({"topic": ""}, "a batch without a topic"),
        ({"keys": [b"a"]}, "with 2 values and 1 keys"),
        ({"headers": [pb.Headers()]}, "with 2 values and 1 headers"),
        ({"timestamps_ms": [1, 2, 3]}, "with 2 values and 3 timestamps_ms"),
        ({"timestamps_ms": [1, -1]}, "a timestamp before 1970"),
        ({"null_values": [2]}, "a null at index 2"),
        ({"keys": [b"a", b"b"], "null_keys": [4_000_000_000]}, "a null at index 4000000000"),
        ({"source_offset": "{}"}, "a source offset and no source partition"),
        ({"source_partition": "x"}, "a source partition is no JSON"),
        ({"partition": 3}, "names a place in Kafka"),
    ],
)
def test_what_is_no_batch_is_refused(batch: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encoded(pb.RecordBatch(**{"topic": "t", "values": [b"1", b"2"], **batch}))


octets_or_none = st.one_of(st.none(), st.binary(max_size=20))


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), octets_or_none, octets_or_none), max_size=20),
)
def test_records_become_columns_in_their_order(rows: list[tuple[str, int, bytes | None, bytes | None]]) -> None:
    records = [
        Record(topic=topic, kafka_partition=partition, kafka_offset=n, key=key, value=value)
        for n, (topic, partition, key, value) in enumerate(rows)
    ]
    found = []
    for _, request in puts(records):
        for batch in pb.Put.FromString(request.SerializeToString()).batches:
            for n, value in enumerate(batch.values):
                key_or_none = None if n in batch.null_keys else batch.keys[n]
                found.append((batch.topic, batch.partition, key_or_none, None if n in batch.null_values else value))
    assert found == rows


def test_headers_and_timestamps() -> None:
    records = [
        Record(topic="t", value=b"1", headers=(("h", b"x"), ("n", None)), timestamp_ms=5),
        Record(topic="t", value=b"2"),
    ]
    ((begin, request),) = puts(records)
    (batch,) = request.batches
    assert begin == 0
    assert list(batch.timestamps_ms) == [5, -1]
    assert [[(each.key, each.HasField("value")) for each in one.headers] for one in batch.headers] == [
        [("h", True), ("n", False)],
        [],
    ]
    assert list(puts([])) == []


def test_many_bytes_are_several_requests() -> None:
    large = b"x" * (PUT_BYTES_MAX // 2)
    records = [Record(topic="t", value=value) for value in (large, large, b"1", large * 3, b"2")]
    assert [(begin, [len(each.values) for each in request.batches]) for begin, request in puts(records)] == [
        (0, [2]),
        (2, [1]),
        (3, [1]),
        (4, [1]),
    ]


@pytest.mark.parametrize(
    "large",
    [
        {"value": {"a": "x" * PUT_BYTES_MAX}},
        {"key": ["x" * PUT_BYTES_MAX]},
        {"headers": (("h", b"x" * PUT_BYTES_MAX),)},
        {"value": "é" * (PUT_BYTES_MAX // 2)},
    ],
)
def test_what_is_counted_is_what_is_sent(large: dict[str, Any]) -> None:
    """A value that becomes JSON may be as large as any, and so may a header: together they would be no message."""
    requests = list(puts([Record(topic="t", **large)] * 9))
    assert [begin for begin, _ in requests] == list(range(9))
    assert max(request.ByteSize() for _, request in requests) < 2 * PUT_BYTES_MAX


def test_from_the_middle_on() -> None:
    records = [Record(topic="t", value=str(n)) for n in range(3)]
    assert [(begin, list(request.batches[0].values)) for begin, request in puts(records, 1)] == [(1, [b"1", b"2"])]
    assert list(puts(records, 3)) == []


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_what_cannot_be_written_is_named_and_in_no_request() -> None:
    records = [Record(topic="t", value=each) for each in (1, nested(5_000), 2, 3, nested(5_000), nested(5_000), 4)]
    found: dict[int, ValueError] = {}
    requests = list(puts(records, unsayable=found.__setitem__))
    assert [(begin, list(request.batches[0].values)) for begin, request in requests] == [
        (0, [b"1"]),
        (2, [b"2", b"3"]),
        (6, [b"4"]),
    ]
    assert sorted(found) == [1, 4, 5] and str(found[1]) == "it is nested too deeply to be written as JSON"
    with pytest.raises(ValueError, match="nested too deeply"):
        list(puts(records))


@pytest.mark.parametrize("beside", [1, 1 << 70], ids=["small", "large"])
def test_what_is_no_number_is_null_whatever_is_beside_it(beside: int) -> None:
    value = {"n": beside, "x": [math.nan, math.inf, -math.inf, 0.5], "y": (math.nan,), "é": Decimal("NaN")}
    text = octets(value)
    assert text is not None
    assert text == f'{{"n":{beside},"x":[null,null,null,0.5],"y":[null],"é":"NaN"}}'.encode()


def test_names_that_are_no_text_are_the_records_fault() -> None:
    with pytest.raises(ValueError, match="it cannot be written as JSON: keys must be"):
        octets({b"a": 1})


def test_what_is_nested_deeply_is_written() -> None:
    assert octets(nested(300)) == b"[" * 300 + b"1" + b"]" * 300


def test_values_that_are_no_bytes() -> None:
    assert octets("é") == "é".encode()
    assert octets({"a": [1, b"\x00", Decimal("1.10")]}) == b'{"a":[1,"AA==","1.10"]}'
    assert octets(7) == b"7"
    assert octets({1: "a", "b": True}) == b'{"1":"a","b":true}'
    assert json.loads(octets({"big": 1 << 70, "b": b"\x00"}) or b"") == {"big": 1 << 70, "b": "AA=="}
    assert octets("") == b""
