"""Our bytes against Kafka's own Java classes: messages, headers, record batches, error codes.

A small Java program answers one line per line; the messages are those the Hypothesis strategies draw from the schemas,
so every version of every message is compared byte by byte.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.core.wire.message_strategies import CASES, messages, root, sample
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import error_for_code
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.compression import CODECS
from tidemill.core.records.record import NewRecord, Record, decode_records
from tidemill.core.wire.api import ALL_APIS
from tidemill.core.wire.codec import encode
from tidemill.core.wire.framing import encode_request
from tidemill.core.wire.message import Message
from tidemill.core.wire.schema import ApiSchema

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.kafka_peer]
PROGRAM = Path(__file__).parent / "java" / "WireOracle.java"
MESSAGE_BYTES_MAX = 5000  # a line of this many hexadecimal digits and a bit more


@pytest.fixture(scope="module")
def oracle() -> Iterator["subprocess.Popen[str]"]:
    """The Java program, which answers a line with a line."""
    from benchmarks import peers

    reason = peers.available()
    if reason:
        pytest.skip(f"Kafka's Java classes cannot be had here: {reason}")
    java = shutil.which("java")
    assert java is not None
    libraries = f"{peers.libraries('kafka', peers.KAFKA)}/*"
    command = [java, "-Xmx256m", "-cp", libraries, str(PROGRAM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        yield program
        assert program.stdin is not None
        program.stdin.close()
        assert program.wait(60) == 0


def ask(oracle: "subprocess.Popen[str]", questions: list[str]) -> list[str]:
    """The answers of the Java program, one per question."""
    assert oracle.stdin is not None
    assert oracle.stdout is not None
    answers = []
    for question in questions:
        oracle.stdin.write(question + "\n")
        oracle.stdin.flush()
        answers.append(oracle.stdout.readline().removesuffix("\n"))
    return answers


def message_questions(schema: ApiSchema, kind: str, version: int) -> list[str]:
    """The full sample of a version and some random messages, as questions."""
    encoded = [encode(sample(schema, kind, version), version)]

    @settings(max_examples=10, suppress_health_check=list(HealthCheck), database=None)
    @given(messages(schema, kind, version))
    def draw(message: Message) -> None:
        encoded.append(encode(message, version))

    draw()
    name = root(schema, kind).name
    return [f"message {name} {version} {data.hex()}" for data in encoded if len(data) <= MESSAGE_BYTES_MAX]


@pytest.mark.parametrize("name", sorted({schema.name for schema, _, _ in CASES}))
def test_every_message_version_reads_and_writes_the_same_in_java(oracle: "subprocess.Popen[str]", name: str) -> None:
    cases = [case for case in CASES if case[0].name == name]
    questions = [line for case in cases for line in message_questions(*case)]
    answers = ask(oracle, questions)
    wrong = [f"{q[:200]} -> {a[:200]}" for q, a in zip(questions, answers, strict=True) if a != "same"]
    assert not wrong, "\n".join(wrong[:10])
    assert len(questions) > 2 * len(cases)


def test_request_headers_read_the_same_in_java(oracle: "subprocess.Popen[str]") -> None:
    expected, questions = [], []
    for api in ALL_APIS:
        for version in range(api.min_version, api.max_version + 1):
            body = api.request()
            frame = encode_request(api.key, version, 1000 + version, "käse", body)[4:]
            questions.append(f"header {frame.hex()}")
            expected.append(
                f"{api.key.value} {version} {1000 + version} käse {len(frame) - len(encode(body, version))}"
            )
    assert ask(oracle, questions) == expected


def text(value: bytes | None) -> str:
    return "null" if value is None else value.hex()


def line(records: list[Record]) -> str:
    out = []
    for record in records:
        headers = "".join(f",{name}={text(value)}" for name, value in record.headers)
        out.append(f"{record.offset},{record.timestamp},{text(record.key)},{text(record.value)}{headers};")
    return "".join(out)


def test_java_reads_our_batches_in_every_codec(oracle: "subprocess.Popen[str]") -> None:
    small = [NewRecord(1000 + i, None, b"v" * i, (("h", None), ("g", b"x"))) for i in range(5)]
    large = [NewRecord(5, b"k", bytes((i * i) & 0xFF for i in range(150_000))), NewRecord(4, None, None)]
    batches = [build_batch(records, codec=codec, base_offset=9) for codec in CODECS for records in (small, large)]
    answers = ask(oracle, [f"records {batch.hex()}" for batch in batches])
    assert answers == [line(decode_records(BatchView(batch))) for batch in batches]


def test_we_read_javas_batches_in_every_codec(oracle: "subprocess.Popen[str]") -> None:
    for codec, answer in zip(CODECS, ask(oracle, [f"build {codec} 2000" for codec in CODECS]), strict=True):
        view = BatchView(bytes.fromhex(answer))
        assert view.verify_crc()
        assert view.codec == CODECS[codec]
        records = decode_records(view)
        assert len(records) == 2000
        assert records[61] == Record(61, 1061, b"k61", b"value 61", (("h", b"\x01"), ("n", None)))
        assert records[0] == Record(0, 1000, None, b"")


def test_error_codes_and_what_to_do_about_them_are_javas(oracle: "subprocess.Popen[str]") -> None:
    ours = ""
    for code in ErrorCode:
        error = None if code is ErrorCode.NONE else error_for_code(code)
        flags = (False, False) if error is None else (error.retriable, error.refresh_metadata)
        ours += f"{code.value},{code.name},{str(flags[0]).lower()},{str(flags[1]).lower()};"
    assert ask(oracle, ["errors"]) == [ours]
