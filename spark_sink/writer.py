"""Rows of a DataFrame written to topics

Columns as for Spark's Kafka sink: `value` (binary or string, required), `key`, `topic` (unless the option `topic` names
one for all rows), `partition`, `headers`. Executors produce with librdkafka, idempotent and acknowledged by every
in-sync replica; a task is done when all its records are acknowledged.

Every batch appends, whatever the output mode, as Spark's Kafka sink does. Spark itself refuses output mode update for
every source in Python (its JVM asks for a Java interface that they cannot have); `foreachBatch(to_topics(...))` of
`program` takes all three modes.

Delivery is at least once: a task that Spark repeats produces its rows again. Exactly once would need a transaction that
outlives the task.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidemill.spark_sink.options import OptionError, check_names, client_settings

WRITER_NAMES = ("topic", "includeHeaders", "path", "checkpointLocation")
_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("integer",),
    "headers": ("array",),
}
_FLUSH_TIMEOUT_S = 120  # delivery.timeout.ms of Kafka's producer


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """Where to write."""

    client: Mapping[str, str]
    topic: str | None


def parse_writer_options(options: Mapping[str, str]) -> WriterOptions:
    """Parse the options of a write; raises OptionError."""
    check_names(options, WRITER_NAMES)
    lower = {name.lower(): value for name, value in options.items()}
    return WriterOptions(client=client_settings(options), topic=lower.get("topic"))


@dataclass
class Written(WriterCommitMessage):
    """What one task did."""

    records: int


class _Writing:
    """Shared by the batch and the stream writer."""

    def __init__(self, options: WriterOptions, schema: StructType) -> None:
        self._options = options
        check_columns(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Produce every row and wait until all are acknowledged."""
        settings = {"enable.idempotence": "true", "linger.ms": "20", **self._options.client}
        producer = Producer(settings)
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)

        records = 0
        for batch in iterator:
            for row in batch.to_pylist():
                _produce(producer, row, self._options.topic, delivered)
                records += 1
            if failures:
                break
        left = producer.flush(_FLUSH_TIMEOUT_S)
        if failures:
            raise RuntimeError(f"{len(failures)} records were not delivered, the first because: {failures[0].str()}")
        if left:
            raise RuntimeError(f"{left} records were not acknowledged within {_FLUSH_TIMEOUT_S} s")
        return Written(records=records)


class BatchWriter(_Writing, DataSourceArrowWriter):
    """For `df.write.format("tidemill")`."""

    def __init__(self, options: WriterOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode('overwrite') cannot be done: a topic keeps what it has; use mode('append')")
        super().__init__(options, schema)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """For `df.writeStream.format("tidemill")`; output mode complete writes all rows again with every batch."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do: a task's records are acknowledged when it ends."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to take back: records that were acknowledged stay (at least once)."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise OptionError unless the columns can be written."""
    names = {field.name: field.dataType.typeName() for field in schema.fields}
    if "value" not in names:
        raise OptionError(f"a column 'value' is needed to write to a topic; there are {', '.join(names)}")
    if topic is None and "topic" not in names:
        raise OptionError("either the option 'topic' or a column 'topic' is needed")
    for name, kind in names.items():
        if name not in _TYPES:
            raise OptionError(f"column {name!r} cannot be written; known are {', '.join(_TYPES)}")
        if kind not in _TYPES[name]:
            raise OptionError(f"column {name!r} must be {' or '.join(_TYPES[name])}, not {kind}")


def _produce(producer: Any, row: Mapping[str, Any], topic: str | None, delivered: Any) -> None:
    target = topic or row.get("topic")
    if not target:
        raise OptionError("a row has no topic and the option 'topic' is not set")
    headers = [(each["key"], each["value"]) for each in row.get("headers") or ()]
    place = {} if row.get("partition") is None else {"partition": row["partition"]}
    while True:
        try:
            producer.produce(
                target, value=row["value"], key=row.get("key"), headers=headers or None, on_delivery=delivered, **place
            )
            break
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            raise RuntimeError(f"cannot write to topic {target!r}: {error.args[0].str()}") from None
    producer.poll(0)
