"""The schema notation: what it says, and what it refuses"""

import json
from pathlib import Path
from typing import Any

import pytest

from tidemill.core.wire.schema import (
    NO_VERSIONS,
    Field,
    SchemaError,
    VersionRange,
    load_schemas,
    parse_api,
    parse_field,
    parse_versions,
)

WINDOW = VersionRange(first=2, last=9)


def field(text: str) -> Field:
    return parse_field(text, WINDOW)


@pytest.mark.parametrize(
    ("text", "expected"), [("3", "3"), ("3+", "3-9"), ("-7", "2-7"), ("3-7", "3-7"), ("9+", "9"), ("2-9", "2-9")]
)
def test_version_ranges(text: str, expected: str) -> None:
    assert str(parse_versions(text, WINDOW)) == expected


@pytest.mark.parametrize("text", ["1", "10", "1+", "7-3", "3-10"])
def test_versions_outside_the_window_are_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="not inside 2-9"):
        parse_versions(text, WINDOW)


def test_a_bare_field_exists_everywhere_and_is_zero() -> None:
    parsed = field("throttle_time_ms int32")
    assert (parsed.name, parsed.type, parsed.array, parsed.tag) == ("throttle_time_ms", "int32", False, None)
    assert (parsed.versions, parsed.nullable, parsed.default) == (WINDOW, NO_VERSIONS, 0)


def test_everything_at_once() -> None:
    parsed = field("cluster_id string 4+ null=5+ tag=0 = null")
    assert parsed.versions == VersionRange(first=4, last=9)
    assert parsed.nullable == VersionRange(first=5, last=9)
    assert (parsed.tag, parsed.default) == (0, None)
    assert field("rack string -5 null").nullable == VersionRange(first=2, last=5)


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("a bool", False),
        ("a bool = true", True),
        ("a int64 = -1", -1),
        ("a float64", 0.0),
        ("a string", ""),
        ("a string = none", "none"),
        ("a bytes", b""),
        ("a records null = empty", b""),
        ("a records null = null", None),
        ("a []int32", ()),
        ("a []int32 null = null", None),
        ("a uuid", ...),
        ("a Cursor", ...),
        ("a Cursor null = null", None),
    ],
)
def test_defaults(text: str, default: object) -> None:
    assert field(text).default == default


@pytest.mark.parametrize(
    "text",
    ["", "name", "Name int32", "a int33", "a string tag", "a int32 = ", "a uuid = 3", "a  int32", "a C null tag=0"],
)
def test_lines_that_are_not_fields_are_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        field(text)


def document(**changes: Any) -> dict[str, Any]:
    return {
        "api": "FindThing",
        "key": 99,
        "versions": "0-3",
        "flexible": "2+",
        "request": ["name string", "id int32 1+", "note string 2+ null tag=1 = null", "more Thing 3+ tag=0"],
        "response": ["things []Thing"],
        "structs": {"Thing": ["id int32", "parts []Part 3+"], "Part": ["size int8"]},
        **changes,
    }


def test_an_api_is_read_whole() -> None:
    schema = parse_api(document())
    assert (schema.name, schema.key, schema.module, schema.flexible_from) == ("FindThing", 99, "find_thing", 2)
    assert [struct.name for struct in schema.structs_of(schema.request)] == ["Part", "Thing", "FindThingRequest"]


def test_a_layout_is_what_one_version_has_on_the_wire() -> None:
    schema = parse_api(document())
    oldest = schema.layout(schema.request, 0)
    assert [f.name for f in oldest.fields] == ["name"]
    assert (oldest.flexible, oldest.tagged, oldest.absent) == (False, (), ("id", "note", "more"))
    newest = schema.layout(schema.request, 3)
    assert [f.name for f in newest.fields] == ["name", "id"]
    assert [f.name for f in newest.tagged] == ["more", "note"]
    assert newest.flexible
    inner = newest.tagged[0].struct
    assert inner is not None
    assert [f.name for f in inner.fields] == ["id", "parts"]
    assert schema.layout(schema.response, 0) == schema.layout(schema.response, 1)
    assert schema.layout(schema.response, 1) != schema.layout(schema.response, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": 1}, "expected the keys"),
        ({"structs": {}}, "no struct Thing"),
        ({"request": []}, "tags|unused"),
        ({"request": ["more Thing 2+ tag=1"]}, "count up from 0"),
        ({"request": ["note string 1+ tag=0"]}, "tagged before version 2"),
        ({"request": ["a int32 5+"]}, "not inside 0-3"),
    ],
)
def test_schemas_that_contradict_themselves_are_refused(changes: dict[str, Any], message: str) -> None:
    if changes.get("request") == []:
        changes = {**changes, "response": []}
    with pytest.raises(SchemaError, match=message):
        parse_api(document(**changes))


def test_a_file_is_named_after_its_api(tmp_path: Path) -> None:
    (tmp_path / "Other.json").write_text(json.dumps(document()))
    with pytest.raises(SchemaError, match=r"Other.json: holds the schema of FindThing"):
        load_schemas(tmp_path)
    (tmp_path / "Other.json").write_text("{")
    with pytest.raises(SchemaError, match=r"^Other.json: "):
        load_schemas(tmp_path)


def test_the_windows_are_those_we_promise() -> None:
    windows = {schema.name: f"{schema.versions.first}-{schema.versions.last}" for schema in load_schemas()}
    assert windows == {
        "Produce": "3-13",
        "Fetch": "4-18",
        "ListOffsets": "1-11",
        "Metadata": "0-13",
        "OffsetCommit": "2-10",
        "OffsetFetch": "1-10",
        "FindCoordinator": "0-6",
        "JoinGroup": "0-9",
        "Heartbeat": "0-4",
        "LeaveGroup": "0-5",
        "SyncGroup": "0-5",
        "DescribeGroups": "0-6",
        "ListGroups": "0-5",
        "ApiVersions": "0-4",
        "CreateTopics": "2-7",
        "DeleteTopics": "1-6",
        "DeleteRecords": "0-2",
        "InitProducerId": "0-5",
        "OffsetForLeaderEpoch": "2-4",
        "DescribeConfigs": "1-4",
        "AlterConfigs": "0-2",
        "AlterReplicaLogDirs": "1-2",
        "DescribeLogDirs": "1-5",
        "CreatePartitions": "0-3",
        "DeleteGroups": "0-2",
        "ElectLeaders": "0-2",
        "IncrementalAlterConfigs": "0-1",
        "AlterPartitionReassignments": "0-1",
        "ListPartitionReassignments": "0-0",
        "OffsetDelete": "0-0",
        "DescribeQuorum": "0-2",
        "UpdateFeatures": "0-2",
        "DescribeCluster": "0-2",
        "DescribeProducers": "0-0",
        "UnregisterBroker": "0-0",
        "ListConfigResources": "0-1",
        "DescribeTopicPartitions": "0-0",
        # among nodes
        "Vote": "0-2",
        "BeginQuorumEpoch": "0-1",
        "EndQuorumEpoch": "0-1",
        "AlterPartition": "2-3",
        "Envelope": "0-0",
        "FetchSnapshot": "0-1",
        "BrokerRegistration": "0-4",
        "BrokerHeartbeat": "0-1",
        "AllocateProducerIds": "0-0",
        "AddRaftVoter": "0-1",
        "RemoveRaftVoter": "0-0",
        "UpdateRaftVoter": "0-0",
    }


def test_rows_are_named_among_the_structs() -> None:
    schema = parse_api({**document(), "rows": ["Thing"]})
    assert schema.structs["Thing"].is_row
    assert not schema.request.is_row
    with pytest.raises(SchemaError, match=r"no structs \['Other'\] to be rows"):
        parse_api({**document(), "rows": ["Thing", "Other"]})
