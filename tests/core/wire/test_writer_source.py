"""The encoder's source: runs in one pack, records uncopied"""

from tidemill.core.wire.schema import load_schemas
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
            has_records = struct.name in ("ProduceRequest", "FetchResponse")
            assert ("chunks.append(" in text) is has_records


def test_absent_fields_are_not_mentioned() -> None:
    schema = SCHEMAS["Metadata"]
    text = "\n".join(writer_source("write_it", schema.layout(schema.request, 0), set()))
    assert "allow_auto_topic_creation" not in text


def test_the_source_compiles() -> None:
    schema = SCHEMAS["Fetch"]
    compile("\n".join(writer_source("write_it", schema.layout(schema.response, 16), set())), "write_it", "exec")
