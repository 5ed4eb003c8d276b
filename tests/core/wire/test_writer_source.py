"""The encoder's source: runs in one pack, records uncopied"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.wire.message_strategies import messages
from tests.core.wire.plain_codec import ROW_IDS, ROW_KINDS, plain_bytes
from tidemill.core.wire.codec import encode, encode_chunks
from tidemill.core.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from tidemill.core.wire.schema import ApiSchema, load_schemas
from tidemill.core.wire.writer_source import writer_source

SCHEMAS = {schema.name: schema for schema in load_schemas()}


def test_numbers_and_the_length_behind_them_are_one_pack() -> None:
    schema = SCHEMAS["Produce"]
    structs: set[str] = set()
    text = "\n".join(writer_source("write_it", schema.layout(schema.request, 9), structs))
    assert "_p_hiB(m.acks, m.timeout_ms, n)" in text
    assert {"hiB", "hi"} <= structs


def test_only_records_leave_the_buffer() -> None:
    for schema in SCHEMAS.values():
        for struct in (schema.request, schema.response):
            text = "\n".join(writer_source("write_it", schema.layout(struct, schema.versions.last), set()))
            has_records = struct.name in ("ProduceRequest", "FetchResponse", "FetchSnapshotResponse")
            assert ("chunks.append(" in text) is has_records


def test_absent_fields_are_not_mentioned() -> None:
    schema = SCHEMAS["Metadata"]
    text = "\n".join(writer_source("write_it", schema.layout(schema.request, 0), set()))
    assert "allow_auto_topic_creation" not in text


def test_the_source_compiles() -> None:
    schema = SCHEMAS["Fetch"]
    compile("\n".join(writer_source("write_it", schema.layout(schema.response, 16), set())), "write_it", "exec")


@pytest.mark.parametrize(("schema", "kind"), ROW_KINDS, ids=ROW_IDS)
def test_rows_have_the_bytes_that_plain_structs_have(schema: ApiSchema, kind: str) -> None:
    @settings(max_examples=200)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        version = data.draw(st.integers(schema.versions.first, schema.versions.last))
        message = data.draw(messages(schema, kind, version))
        assert encode(message, version) == plain_bytes(schema.name, kind, version, message)

    check()


def test_a_row_in_which_nothing_has_a_length_is_one_pack() -> None:
    schema = SCHEMAS["Fetch"]
    lines = writer_source("write_it", schema.layout(schema.response, 13), set())
    number = next(i for i, line in enumerate(lines) if "if not e_4_records:" in line)
    assert "out += _p_ihqqqBiBB(" in lines[number + 1]
    assert lines[number + 2].strip() == "continue"


def test_records_of_rows_are_passed_on_uncopied() -> None:
    records = memoryview(bytearray(100))
    full, quiet = PartitionData(records=records), PartitionData(partition_index=1)
    for version in range(4, 19):
        response = FetchResponse(responses=(FetchableTopicResponse(partitions=(full, quiet, full)),))
        chunks = encode_chunks(response, version)
        assert [chunk is records for chunk in chunks] == [False, True, False, True, *([False] * (version >= 12))]


def test_a_tagged_struct_is_written_only_if_its_values_are_not_those_of_the_default() -> None:
    nobody = encode(FetchRequest(), 18)
    assert encode(FetchRequest(replica_state=ReplicaState()), 18) == nobody
    somebody = FetchRequest(replica_state=ReplicaState(replica_id=3, replica_epoch=-1))
    tagged = bytes.fromhex("01" + "01" + "0d" + "00000003" + "ffffffffffffffff" + "00")
    assert encode(somebody, 18) == nobody[:-1] + tagged
