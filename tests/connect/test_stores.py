"""The records of the three topics, against bytes that Apache Connect 4.3.1 wrote"""

import json
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.stores import (
    ConfigRecord,
    ConnectorConfig,
    InstanceGone,
    InstanceStatus,
    LoggerLevel,
    RestartRequest,
    SessionKey,
    SourceOffsetRecord,
    State,
    StatusRecord,
    TargetState,
    TargetStateChange,
    TaskConfig,
    TasksCommit,
    TasksFencing,
    TopicUnused,
    TopicUse,
    WorkerClaim,
    decode_config,
    decode_offset,
    decode_status,
    encode_config,
    encode_offset,
    encode_offset_key,
    encode_status,
    partition_identity,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "connect_topics.jsonl"


def golden(topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["topic"] == topic:
            yield record["key"].encode(), None if record["value"] is None else record["value"].encode()


def test_config_records_of_apache_are_read_and_written_back_byte_for_byte() -> None:
    kinds = set()
    for key, value in golden("configs"):
        record = decode_config(key, value)
        if value is not None and b":null" in value:  # a setting of null is dropped, see below
            assert isinstance(record, ConnectorConfig)
        else:
            assert record is not None, key
            assert encode_config(record) == (key, value)
            kinds.add(type(record))
    assert kinds == {
        ConnectorConfig,
        TaskConfig,
        TasksCommit,
        TargetStateChange,
        RestartRequest,
        LoggerLevel,
        SessionKey,
    }


def test_a_session_key_is_shown_to_nobody() -> None:
    assert "secret" not in repr(SessionKey(key=b"secret", algorithm="HmacSHA256", created_ms=1))


def test_status_records_of_apache_are_read_and_written_back_byte_for_byte() -> None:
    kinds = set()
    for key, value in golden("status"):
        record = decode_status(key, value)
        assert record is not None, key
        assert encode_status(record) == (key, value)
        kinds.add(type(record))
    assert kinds == {InstanceStatus, InstanceGone, TopicUse, TopicUnused}


def test_source_offsets_of_apache_are_read_and_written_back_byte_for_byte() -> None:
    records = list(golden("offsets"))
    assert records
    for key, value in records:
        record = decode_offset(key, value)
        assert record is not None, key
        assert encode_offset(record) == (key, value)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            TargetStateChange(connector="c", state=TargetState.STOPPED),
            b"target-state-c",
            b'{"state":"PAUSED","state.v2":"STOPPED"}',
        ),
        (TasksFencing(connector="c", tasks=3), b"tasks-fencing-c", b'{"task-count":3}'),
        (ConnectorConfig(connector="c", properties=None), b"connector-c", None),
        (
            TaskConfig(connector="a-1", task=2, properties={"k": "v"}),
            b"task-a-1-2",
            b'{"properties":{"k":"v"}}',
        ),
    ],
)
def test_config_records_by_hand(record: ConfigRecord, key: bytes, value: bytes | None) -> None:
    assert encode_config(record) == (key, value)
    assert decode_config(key, value) == record


@pytest.mark.parametrize(
    "value",
    [
        b'{"state":"PAUSED"}',
        b'{"state":"PAUSED","state.v2":null}',
        b'{"state":"PAUSED","state.v2":7}',
        b'{"state":"STARTED","state.v2":"PAUSED"}',
    ],
)
def test_the_older_state_field_counts_where_the_newer_one_holds_no_text(value: bytes) -> None:
    record = decode_config(b"target-state-c", value)
    assert record == TargetStateChange(connector="c", state=TargetState.PAUSED)


def test_settings_of_null_are_dropped() -> None:
    record = decode_config(b"connector-c", b'{"properties":{"a":null,"b":"1"}}')
    assert record == ConnectorConfig(connector="c", properties={"b": "1"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"\xff\xfe", b"{}"),
        (b"something-else", b"{}"),
        (b"session-key", None),
        (b"session-key", b'{"key":"AAAA","algorithm":"HmacSHA256"}'),
        (b"session-key", b'{"key":"AAA","algorithm":"HmacSHA256","creation-timestamp":1}'),
        (b"session-key", b'{"key":"A*A=","algorithm":"HmacSHA256","creation-timestamp":1}'),
        (b"session-key", b'{"key":"","algorithm":"HmacSHA256","creation-timestamp":1}'),
        (b"session-key", b'{"key":"' + b"AAAA" * 3_000 + b'","algorithm":"HmacSHA256","creation-timestamp":1}'),
        (b"session-key", b'{"key":"AAAA","algorithm":1,"creation-timestamp":1}'),
        (b"session-key", b'{"key":"AAAA","algorithm":"HmacSHA256","creation-timestamp":true}'),
        (b"connector-c", b"not json"),
        (b"connector-c", b"[]"),
        (b"connector-c", b'{"properties":[]}'),
        (b"task-c", b'{"properties":{}}'),
        (b"task-c-x", b'{"properties":{}}'),
        ("task-c-٣".encode(), b'{"properties":{}}'),
        (b"task-c-0", None),
        (b"commit-c", b'{"tasks":-1}'),
        (b"commit-c", b'{"tasks":true}'),
        (b"commit-c", b'{"tasks":2147483648}'),
        (b"task-c-" + b"9" * 5_000, b'{"properties":{}}'),
        (b"task-c-2147483648", b'{"properties":{}}'),
        (b"target-state-c", b'{"state":"UPSIDE_DOWN"}'),
        (b"target-state-c", b'{"state":7}'),
        (b"restart-connector-c", None),
        (b"logger-cluster-x", b'{"level":1}'),
    ],
)
def test_config_records_that_are_not_understood(key: bytes | None, value: bytes | None) -> None:
    assert decode_config(key, value) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"{}", b"{}"),
        (b'["c"]', b"{}"),
        (b'["c",{},1]', b"{}"),
        (b'[1,{"a":1}]', b"{}"),
        (b'["c",[]]', b"{}"),
        (b'["c",{"a":1}]', b"[]"),
        (b'["c",{"a":1}]', b"{"),
    ],
)
def test_offsets_that_are_not_understood(key: bytes | None, value: bytes | None) -> None:
    assert decode_offset(key, value) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"status-task-c", b"{}"),
        (b"status-connector-c", b'{"state":"DREAMING"}'),
        (b"status-connector-c", b'{"state":{}}'),
        (b"status-topic-t", b"{}"),
        (b"status-topic-t:connector-c", b'{"topic":1}'),
        (b"status-topic-t:connector-c", b'{"topic":{"name":"t"}}'),
        (b"status-task-c-" + b"9" * 5_000, b'{"state":"RUNNING"}'),
        (b"status-connector-c", b'{"state":"RUNNING","generation":9223372036854775807}'),
        (b"worker-claim", b'{"generation":1}'),
        (b"worker-claim", None),
    ],
)
def test_statuses_that_are_not_understood(key: bytes | None, value: bytes | None) -> None:
    assert decode_status(key, value) is None


def test_a_claim_round_trips() -> None:
    claim = WorkerClaim(worker_id="h:1", generation=7, life="a1", group="g")
    key, value = encode_status(claim)
    assert (key, value) == (b"worker-claim", b'{"worker_id":"h:1","generation":7,"life":"a1","group":"g"}')
    assert decode_status(key, value) == claim


def test_the_order_of_a_partitions_keys_is_kept_in_the_key_and_ignored_in_lookups() -> None:
    assert encode_offset_key("c", {"b": 1, "a": "ä"}) == '["c",{"b":1,"a":"ä"}]'.encode()
    assert partition_identity({"b": 1, "a": 2}) == partition_identity({"a": 2, "b": 1})


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
properties = st.dictionaries(names, names, max_size=4)
counts = st.integers(0, 1000)
config_records = st.one_of(
    st.builds(ConnectorConfig, connector=names, properties=st.none() | properties),
    st.builds(TaskConfig, connector=names, task=counts, properties=properties),
    st.builds(TasksCommit, connector=names, tasks=counts),
    st.builds(TargetStateChange, connector=names, state=st.none() | st.sampled_from(TargetState)),
    st.builds(RestartRequest, connector=names, include_tasks=st.booleans(), only_failed=st.booleans()),
    st.builds(TasksFencing, connector=names, tasks=counts),
    st.builds(LoggerLevel, logger=names, level=names),
)
topics = st.text("abc.-_", min_size=1, max_size=9)
status_records = st.one_of(
    st.builds(
        InstanceStatus,
        connector=names,
        task=st.none() | counts,
        state=st.sampled_from(State),
        worker_id=names,
        generation=counts,
        trace=st.none() | names,
        version=st.none() | names,
    ),
    st.builds(InstanceGone, connector=names, task=st.none() | counts),
    st.builds(TopicUse, connector=names, topic=topics, task=counts, discovered_ms=counts),
    st.builds(TopicUnused, connector=names, topic=topics),
)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | names
flat_maps = st.dictionaries(names, scalars, max_size=4)


@given(config_records)
def test_config_records_round_trip(record: ConfigRecord) -> None:
    assert decode_config(*encode_config(record)) == record


@given(status_records)
def test_status_records_round_trip(record: StatusRecord) -> None:
    assert decode_status(*encode_status(record)) == record


@given(names, flat_maps, st.none() | flat_maps)
def test_offsets_round_trip(connector: str, partition: dict[str, object], offset: dict[str, object] | None) -> None:
    record = SourceOffsetRecord(connector, partition, offset)
    assert decode_offset(*encode_offset(record)) == record


@given(st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_no_bytes_make_a_decoder_raise(key: bytes | None, value: bytes | None) -> None:
    for decode in (decode_config, decode_status, decode_offset):
        decode(key, value)


json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
)
keys = st.sampled_from(
    ["connector-c", "task-c-0", "commit-c", "target-state-c", "restart-connector-c", "tasks-fencing-c"]
    + ["logger-cluster-l", "status-connector-c", "status-task-c-0", "status-topic-t:connector-c"]
)


@given(keys, json_values)
def test_no_json_makes_a_decoder_raise(key: str, value: object) -> None:
    for decode in (decode_config, decode_status, decode_offset):
        decode(key.encode(), orjson.dumps(value))
