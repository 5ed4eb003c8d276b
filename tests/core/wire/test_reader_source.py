"""The decoder's source: runs in one unpack, checks before slices"""

from tidemill.core.wire.reader_source import reader_source
from tidemill.core.wire.schema import load_schemas

SCHEMAS = {schema.name: schema for schema in load_schemas()}


def source(api: str, version: int) -> tuple[str, set[str]]:
    schema = SCHEMAS[api]
    structs: set[str] = set()
    lines = reader_source("read_it", schema.layout(schema.request, version), structs)
    return "\n".join(lines), structs


def test_neighbouring_numbers_and_the_length_behind_them_are_one_unpack() -> None:
    text, structs = source("Produce", 9)
    assert "hiB" in structs
    assert "s_1.acks, s_1.timeout_ms, n = _u_hiB(b, o)" in text
    text, structs = source("Produce", 3)
    assert "hii" in structs


def test_every_slice_is_preceded_by_a_check() -> None:
    for schema in SCHEMAS.values():
        for version in range(schema.versions.first, schema.versions.last + 1):
            for struct in (schema.request, schema.response):
                lines = reader_source("f", schema.layout(struct, version), set())
                for i, line in enumerate(lines):
                    if "[o:e]" in line:
                        assert "> end:" in lines[i - 2] or "<= end:" in lines[i - 2], line
                    if "for _ in range(n):" in line and "tag" not in lines[i + 1]:
                        assert any("> end - o:" in before for before in lines[i - 4 : i]), line


def test_the_source_compiles() -> None:
    text, _ = source("Fetch", 18)
    compile(text, "read_it", "exec")
