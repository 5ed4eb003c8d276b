"""`tidemill produce` and `tidemill consume` against a real broker."""

import json
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest
import typer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package re-exports without saying so
    AdminClient,
    NewTopic,
)
from typer.testing import CliRunner, Result

from tidemill import records_cli
from tidemill.records_cli import consume, produce

if TYPE_CHECKING:
    from tidemill.services import Service

pytestmark = pytest.mark.integration

app = typer.Typer()
app.command()(produce)
app.command()(consume)


class Records:
    """Both commands on one fresh topic."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.topic = f"records-{uuid.uuid4().hex[:8]}"

    def produce(self, lines: bytes, *arguments: str) -> Result:
        command = ["produce", self.topic, "--create", *arguments, "--bootstrap-server", self.address]
        return CliRunner().invoke(app, command, input=lines)

    def consume(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["consume", self.topic, *arguments, "-b", self.address])

    def rows(self, *arguments: str) -> list[Any]:
        result = self.consume("--from-beginning", "--format", "json", *arguments)
        assert result.exit_code == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def records(tidemill_broker: "Service") -> Records:
    return Records(tidemill_broker.facts["address"])


def test_lines_go_in_and_come_out(records: Records) -> None:
    written = records.produce("one\ntwo\r\n\nvier ü\n".encode())
    assert (written.exit_code, written.stderr) == (0, f"4 records written to {records.topic}\n")
    read = records.consume("--from-beginning", "--max-messages", "4")
    assert (read.exit_code, read.stdout) == (0, "one\ntwo\n\nvier ü\n")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_headers_and_codecs(records: Records, codec: str) -> None:
    options = (
        "--key-separator",
        ":",
        "--header",
        "a=1",
        "--header",
        "b=",
        "--compression",
        codec,
        "--acks",
        "1",
        "--quiet",
    )
    written = records.produce(b"k1:v1\nk2:v:2\n", *options)
    assert (written.exit_code, written.stderr) == (0, "")
    rows = records.rows("--max-messages", "2")
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == [
        ("k1", "v1", [["a", "1"], ["b", ""]]),
        ("k2", "v:2", [["a", "1"], ["b", ""]]),
    ]
    assert [row["offset"] for row in rows] == [0, 1]
    text = records.consume("--from-beginning", "--max-messages", "1", "--key-separator", " => ")
    assert text.stdout == "k1 => v1\n"


def test_bytes_that_are_no_text_are_shown_as_what_they_are(records: Records) -> None:
    producer = Producer({"bootstrap.servers": records.address})
    producer.produce(records.topic, value=b"\xff\x00", key=None)
    producer.produce(records.topic, value=None, key=b"k")
    assert producer.flush(30) == 0
    first, second = records.rows("--max-messages", "2")
    assert first["value"] == {"base64": "/wA="}
    assert (second["key"], second["value"]) == ("k", None)


def test_a_group_goes_on_where_it_stopped(records: Records) -> None:
    records.produce(b"".join(b"%d\n" % number for number in range(5)))
    group = f"group-{uuid.uuid4().hex[:8]}"
    assert [row["value"] for row in records.rows("--group", group, "--max-messages", "2")] == ["0", "1"]
    assert [row["value"] for row in records.rows("--group", group, "--max-messages", "3")] == ["2", "3", "4"]


def test_a_group_that_is_terminated_goes_on_there_too(records: Records) -> None:
    records.produce(b"one\ntwo\n")
    group = f"group-{uuid.uuid4().hex[:8]}"
    command = ["consume", records.topic, "--group", group, "--from-beginning", "-b", records.address]
    with subprocess.Popen([sys.executable, "-m", "tidemill.cli", *command], stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert [reader.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
        reader.terminate()
        assert reader.wait(30) == 0
    records.produce(b"three\n")
    assert [row["value"] for row in records.rows("--group", group, "--max-messages", "1")] == ["three"]


def test_without_a_group_nothing_is_left_behind(records: Records) -> None:
    records.produce(b"x\n")
    records.consume("--from-beginning", "--max-messages", "1")
    consumer = Consumer({"bootstrap.servers": records.address, "group.id": "tidemill-cli"})
    from confluent_kafka import TopicPartition

    (position,) = consumer.committed([TopicPartition(records.topic, 0)], timeout=10)
    consumer.close()
    assert position.offset < 0


def test_a_timeout_ends_it(records: Records) -> None:
    records.produce(b"x\n")
    assert records.consume("--from-beginning", "--timeout", "0.5").stdout == "x\n"
    assert records.consume("--timeout", "0.5").stdout == "", "from the end"


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("--partition", "9"), 1, "has no partition 9"),
        (("--group", "g", "--partition", "0"), 2, "leave --partition away"),
    ],
)
def test_what_cannot_be_read(records: Records, arguments: tuple[str, ...], status: int, says: str) -> None:
    records.produce(b"x\n")
    result = records.consume(*arguments)
    assert result.exit_code == status
    assert says in result.stderr


def test_a_topic_that_is_not_there(records: Records) -> None:
    result = records.consume("--timeout", "1")
    assert result.exit_code == 1
    assert "make it with 'tidemill topic create" in result.stderr


def test_a_line_without_its_key_ends_it_after_what_was_good(records: Records) -> None:
    result = records.produce(b"a:1\nb:2\nc3\nd:4\n", "--key-separator", ":")
    assert result.exit_code == 1
    assert "line 3 has no key separator ':': b'c3': 2 records were written before it" in result.stderr
    assert [row["value"] for row in records.rows("--timeout", "1")] == ["1", "2"]


def test_a_mistyped_topic_is_not_created(records: Records) -> None:
    records.produce(b"x\n")
    mistyped = records.topic[:-1]
    result = CliRunner().invoke(app, ["produce", mistyped, "--bootstrap", records.address], input=b"y\n")
    assert result.exit_code == 1
    assert f"there is no topic {mistyped!r}, did you mean {records.topic!r}?: --create makes it" in result.stderr
    read = CliRunner().invoke(app, ["consume", mistyped, "--bootstrap", records.address])
    assert f"there is no topic {mistyped!r}, did you mean {records.topic!r}?: make it" in read.stderr
    assert mistyped not in AdminClient({"bootstrap.servers": records.address}).list_topics(timeout=10).topics


def test_a_header_without_a_value_is_wrong_usage(records: Records) -> None:
    assert records.produce(b"x\n", "--header", "a").exit_code == 2


def test_a_record_too_large_is_refused_with_the_reason(records: Records) -> None:
    result = records.produce(b"x" * 2_000_000 + b"\n")
    assert result.exit_code == 1
    assert "too large" in result.stderr.lower()


def test_records_that_wait_while_the_cluster_answers(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = AdminClient({"bootstrap.servers": records.address})
    (answer,) = admin.create_topics([NewTopic(records.topic)]).values()
    answer.result()
    monkeypatch.setattr(records_cli, "DELIVERY_TIMEOUT_S", 0.0)  # no cluster is that quick
    done = records.produce(b"x\n")
    assert done.exit_code == 1
    assert "1 records were not acknowledged: the cluster at" in done.stderr
    assert "answers and does not take them" in done.stderr
