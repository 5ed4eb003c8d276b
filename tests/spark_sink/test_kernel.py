"""What of the compiled kernel its readers' tests do not show: being there or not"""

from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark_sink.compiled import COMPILED
from tidemill.spark_sink.kernel import NOT_BUILT, OTHER_SOURCE, load
from tidemill.spark_sink.kernel_build import SOURCE, build

needs_compiler = pytest.mark.skipif(COMPILED is None, reason="no C compiler")


def test_without_library_there_is_none(tmp_path: Path) -> None:
    assert load(tmp_path / "libkernel.so") == (None, NOT_BUILT)
    (tmp_path / "libkernel.so").write_bytes(b"no library")
    assert load(tmp_path / "libkernel.so") == (None, NOT_BUILT)


@needs_compiler
def test_a_library_of_other_source_is_not_used(tmp_path: Path) -> None:
    source = tmp_path / "kernel.c"
    source.write_text(SOURCE.read_text() + "/* more */")
    assert load(build(tmp_path / "other.so", source)) == (None, OTHER_SOURCE)


@needs_compiler
@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b'{"op":"c","source":{"a":[1,{"b":null}]},"after":{"id":1}}', b'{"op":"c","after":{"id":1}}\n'),
        (b' { "x" : -0.5e+7 , "op" : "u" } ', b'{"op":"u"}\n'),
        (b"{}", b"{}\n"),
        (rb'{"a":"\"\\\u00e9\ud83d\ude00","op":"\n"}', rb'{"op":"\n"}' + b"\n"),
        (b'{"op":{"op":1},"op2":[],"after":null}', b'{"op":{"op":1},"after":null}\n'),
    ],
)
def test_documents_are_reduced_to_members(document: bytes, expected: bytes) -> None:
    assert COMPILED is not None
    found = COMPILED.project(pa.array([b"{}", document]).slice(1), ("op", "after"))
    assert found is not None
    assert found.to_pylist() == [expected]


@needs_compiler
@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{",
        b'{"op"',
        b'{"op":',
        b'{"op":1,}',
        b'{"op":1}}',
        b'{"op":01}',
        b'{"op":1.}',
        b'{"op":-}',
        b'{"op":1e}',
        b'{"op":nul}',
        b'{"op":"a}',
        b'{"op":"\n"}',
        rb'{"op":"\x"}',
        rb'{"op":"\ud800"}',
        rb'{"op":"\udc00"}',
        rb'{"op":"\u12"}',
        b'{"op":1,"op":2}',
        rb'{"\u006fp":1}',
        b'{"op":' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"op":[1,]}',
        b'{"op":{1:2}}',
        b'{"op":NaN}',
    ],
)
def test_what_is_not_for_the_short_way_is_left_alone(document: bytes) -> None:
    assert COMPILED is not None
    assert COMPILED.project(pa.array([document]), ("op", "after")) is None
