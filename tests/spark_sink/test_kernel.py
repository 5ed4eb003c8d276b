"""What of the compiled kernel its readers' tests do not show: being there or not"""

import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark_sink.compiled import COMPILED
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.spark_sink.core_api import HEADER_BYTES
from tidemill.spark_sink.kernel import NOT_BUILT, OTHER_SOURCE, load
from tidemill.spark_sink.kernel_build import SOURCE, CannotBuild, build, compiler

SANITIZED = Path(__file__).with_name("kernel_sanitized.c")
SANITIZERS = ("-O1", "-g", "-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
ROUNDS = 50_000
DOCUMENT = r'{"op":"é😀","x":[-1.5e7,{"a":true}],"before":null,"after":"\n\u00e9\ud83d\ude00"}'.encode()

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
        ('{"é€😀":"é€😀","op":"é€😀"}'.encode(), '{"op":"é€😀"}\n'.encode()),
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
        b'{"x":1e999}',
        b'{"x":"\xff"}',
        b'{"x":"\xc0\xaf"}',
        b'{"x":"\xe2\x82"}',
        b'{"x":"\xed\xa0\x80"}',
        b'{"x":"\xf4\x90\x80\x80"}',
        b'{"x":"\xf0\x9f\x98',
    ],
)
def test_what_is_not_for_the_short_way_is_left_alone(document: bytes) -> None:
    assert COMPILED is not None
    assert COMPILED.project(pa.array([document]), ("op", "after")) is None


def test_nothing_is_read_or_written_outside_whatever_the_bytes_say(tmp_path: Path) -> None:
    """Damaged records and documents, with the compiler's sanitizers watching every access."""
    program = tmp_path / "kernel_sanitized"
    try:
        command = [*compiler(), *SANITIZERS, "-DSOURCE_CRC=0u", "-o", str(program), str(SANITIZED)]
    except CannotBuild as error:
        pytest.skip(str(error))
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    if compiled.returncode:
        pytest.skip(f"the compiler has no sanitizers: {compiled.stderr[-300:]}")
    records = [NewRecord(i, b"key" * (i % 3) or None, b"v" * i or None, (("h", b"v"),) * (1 - i % 2)) for i in range(6)]
    (tmp_path / "records").write_bytes(build_batch(records)[HEADER_BYTES:])
    (tmp_path / "document").write_bytes(DOCUMENT)
    seeds = [str(tmp_path / "records"), str(tmp_path / "document")]
    done = subprocess.run([program, str(ROUNDS), *seeds], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rounds, read, reduced = map(int, done.stdout.split())
    assert rounds == ROUNDS
    assert min(read, reduced) > ROUNDS // 50  # what is refused at once would show nothing
