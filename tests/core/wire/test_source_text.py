"""Sizes and text of generated source"""

from tidemill.core.wire.schema import load_schemas
from tidemill.core.wire.source_text import SourceText, element_bytes_min, fixed_bytes, length_code, struct_bytes_min


def test_runs_have_the_size_struct_gives_them() -> None:
    assert fixed_bytes("ihqB?d") == 4 + 2 + 8 + 1 + 1 + 8


def test_length_prefixes() -> None:
    assert length_code("string", False, False) == "h"
    assert length_code("string", True, False) == "i"
    assert length_code("bytes", False, False) == "i"
    assert length_code("string", False, True) == "B"


def test_smallest_sizes_of_produce() -> None:
    produce = next(schema for schema in load_schemas() if schema.name == "Produce")
    classic = produce.layout(produce.request, 3)
    topics = classic.fields[-1]
    assert element_bytes_min(topics, False) == 2 + 4
    assert struct_bytes_min(classic) == 2 + 2 + 4 + 4
    flexible = produce.layout(produce.request, 13)
    assert element_bytes_min(flexible.fields[-1], True) == 16 + 1 + 1
    assert struct_bytes_min(flexible) == 1 + 2 + 4 + 1 + 1


def test_blocks_indent_and_names_are_fresh() -> None:
    text = SourceText()
    with text.block("if a:"):
        text.line("b()")
    text.line("c()")
    assert text.lines == ["    if a:", "        b()", "    c()"]
    assert text.fresh("s") != text.fresh("s")
