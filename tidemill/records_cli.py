"""`tidemill produce` and `tidemill consume`: records by hand

`produce` sends each line of standard input as a record and waits until the cluster has acknowledged all of them.
`consume` prints records as text or as one JSON object per line; without `--group` it reads on its own and leaves no
trace in the cluster, with it the group's position moves.
"""

import base64
import json
import signal
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # the package re-exports without saying so

from tidemill.bootstrap import LastError, client_settings, connect_admin, reason_of, why_not_acknowledged
from tidemill.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig
from tidemill.output import fail, nearest_hint

DELIVERY_TIMEOUT_S = 60.0
POLL_S = 0.2


class Format(StrEnum):
    """How `consume` prints a record."""

    TEXT = "text"
    JSON = "json"


class Codec(StrEnum):
    """Compression codecs of record batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Who has to have a record before it counts as sent."""

    NOBODY = "0"
    LEADER = "1"
    ALL = "all"


def produce(
    topic: Annotated[str, typer.Argument(help="Topic to write to.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What stands before it in a line is the key.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="On every record; repeatable.")] = None,
    compression: Annotated[Codec, typer.Option(help="Codec of the batches.")] = Codec.NONE,
    acks: Annotated[Acks, typer.Option(help="0, 1 or all.")] = Acks.ALL,
    partition: Annotated[int, typer.Option(help="-1 lets the key decide.")] = -1,
    create: Annotated[bool, typer.Option("--create", help="Create the topic if there is none.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No count at the end.")] = False,
) -> None:
    """Write lines of standard input to a topic."""
    headers = _headers(header or [])
    _ready_to_write(bootstrap, command_config, topic, create=create)
    last_error = LastError()
    producer = Producer(
        client_settings(
            bootstrap, last_error, {"compression.type": compression, "acks": acks, "linger.ms": "20"}, command_config
        )
    )
    outcome = _Outcome()
    try:
        for number, line in enumerate(sys.stdin.buffer, 1):
            key, value = _split(line.rstrip(b"\r\n"), key_separator, number)
            _send(producer, topic, partition, headers, key, value, outcome)
    except KeyboardInterrupt:
        print("interrupted: waiting for what was sent", file=sys.stderr)
    except _BadLine as error:
        producer.flush(DELIVERY_TIMEOUT_S)
        fail(f"{error}: {outcome.written} records were written before it, nothing after it")
    unsent = producer.flush(DELIVERY_TIMEOUT_S)
    if unsent:
        fail(f"{unsent} records were not acknowledged: {why_not_acknowledged(producer, bootstrap, last_error.text)}")
    if outcome.failed:
        fail(f"{outcome.failed} of {outcome.failed + outcome.written} records were refused: {outcome.reason}")
    if not quiet:
        print(f"{outcome.written} records written to {topic}", file=sys.stderr)


class _Outcome:
    def __init__(self) -> None:
        self.written = 0
        self.failed = 0
        self.reason = ""

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.written += 1
        else:
            self.failed += 1
            self.reason = self.reason or error.str()


class _BadLine(Exception):
    """A line of the input that cannot be sent."""


def _ready_to_write(bootstrap: str, command_config: Path | None, topic: str, *, create: bool) -> None:
    """See that the topic is there: a producer would have a mistyped one created."""
    admin, metadata = connect_admin(bootstrap, command_config)
    if topic in metadata.topics:
        return
    if not create:
        hint = nearest_hint(topic, metadata.topics)
        fail(f"there is no topic {topic!r}{hint}: --create makes it, with the cluster's defaults")
    (answer,) = admin.create_topics([NewTopic(topic)]).values()
    try:
        answer.result(timeout=DELIVERY_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # somebody else was faster: as good
            fail(f"{topic}: {reason_of(error)}")


def _split(line: bytes, key_separator: str | None, number: int) -> tuple[bytes | None, bytes]:
    if key_separator is None:
        return None, line
    key, found, value = line.partition(key_separator.encode())
    if not found:
        raise _BadLine(f"line {number} has no key separator {key_separator!r}: {line[:80]!r}")
    return key, value


def _send(
    producer: Producer,
    topic: str,
    partition: int,
    headers: list[tuple[str, str | bytes | None]],
    key: bytes | None,
    value: bytes,
    outcome: _Outcome,
) -> None:
    while True:
        try:
            producer.produce(
                topic, value=value, key=key, partition=partition, headers=headers or None, on_delivery=outcome
            )
            producer.poll(0)
            return
        except BufferError:
            producer.poll(POLL_S)  # the queue is full: let some of it go first
        except KafkaException as error:
            fail(reason_of(error))


def _headers(pairs: Iterable[str]) -> list[tuple[str, str | bytes | None]]:
    headers: list[tuple[str, str | bytes | None]] = []
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            fail(f"--header takes NAME=VALUE, not {pair!r}", 2)
        headers.append((name, value.encode()))
    return headers


def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Where to start without a committed position.")
    ] = False,
    group: Annotated[str | None, typer.Option(help="Read as a member of this group and move its position.")] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition; not with --group.")] = None,
    max_messages: Annotated[int | None, typer.Option(help="Stop after so many records.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Stop after so many seconds without a record.")] = None,
    output: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
    key_separator: Annotated[str | None, typer.Option(help="Print the key, and this before the value.")] = None,
) -> None:
    """Print records of a topic until stopped."""
    if group is not None and partition is not None:
        fail("--group shares out partitions by itself: leave --partition away", 2)
    partitions = _partitions(bootstrap, command_config, topic, partition)
    last_error = LastError()
    consumer = Consumer(
        client_settings(
            bootstrap,
            last_error,
            {
                "group.id": group or "tidemill-cli",
                "auto.offset.reset": "earliest" if from_beginning else "latest",
                "enable.auto.commit": "false",
                "enable.partition.eof": "false",
                "fetch.wait.max.ms": "100",
            },
            command_config,
        )
    )
    try:
        if group is not None:
            consumer.subscribe([topic])
        else:
            start = OFFSET_BEGINNING if from_beginning else OFFSET_END
            consumer.assign([Position(topic, number, start) for number in partitions])
        shown = _show(consumer, output, key_separator, max_messages, timeout)
        if group is not None and shown:
            consumer.commit(asynchronous=False)
    except KafkaException as error:
        fail(reason_of(error))
    finally:
        consumer.close()


def _partitions(bootstrap: str, command_config: Path | None, topic: str, partition: int | None) -> list[int]:
    _, metadata = connect_admin(bootstrap, command_config)
    found = metadata.topics.get(topic)
    if found is None or found.error is not None:
        hint = nearest_hint(topic, metadata.topics)
        fail(f"there is no topic {topic!r}{hint}: make it with 'tidemill topic create {topic}'")
    if partition is None:
        return sorted(found.partitions)
    if partition not in found.partitions:
        fail(f"topic {topic!r} has no partition {partition}, only 0 to {len(found.partitions) - 1}")
    return [partition]


def _show(
    consumer: Consumer,
    output: Format,
    key_separator: str | None,
    max_messages: int | None,
    timeout: float | None,
) -> int:
    """Print records until one of the limits or the reader says stop; returns how many."""
    shown = 0
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for message in _messages(consumer, timeout):
            line = _as_json(message) if output is Format.JSON else _as_text(message, key_separator)
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()
            shown += 1
            if shown == max_messages:
                break
    except KeyboardInterrupt:
        pass  # the usual way to end it, as is SIGTERM
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; so do we, without a complaint at exit
    finally:
        signal.signal(signal.SIGTERM, before)
    return shown


def _messages(consumer: Consumer, timeout: float | None) -> Iterator[Message]:
    waited = 0.0
    while timeout is None or waited < timeout:
        message = consumer.poll(POLL_S)
        if message is None:
            waited += POLL_S
        elif (error := message.error()) is not None:
            if error.fatal() or not error.retriable():
                raise KafkaException(error)
        else:
            waited = 0.0
            yield message


def _as_text(message: Message, key_separator: str | None) -> bytes:
    value: bytes = message.value() or b""
    if key_separator is None:
        return value
    return (message.key() or b"") + key_separator.encode() + value


def _as_json(message: Message) -> bytes:
    headers: Any = message.headers() or []  # a list of pairs, also where the stubs say dict
    record = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _readable(message.key()),
        "value": _readable(message.value()),
        "headers": [[name, _readable(value)] for name, value in headers],
    }
    return json.dumps(record, ensure_ascii=False).encode()


def _readable(data: bytes | None) -> Any:
    """Text where it is text; bytes that are not UTF-8 as `{"base64": …}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
