"""A range of offsets as the Arrow batches that Spark takes

What an executor does: read the records of its range (`fetch`) and give them the columns of `source.ROW_SCHEMA`, or
parse and reduce them to chunks (`changes`) where change events are to be decoded.
"""

from collections.abc import Iterator

import pyarrow as pa

from tidemill.spark_sink.changes import decoded_chunks
from tidemill.spark_sink.column_types import parse_columns
from tidemill.spark_sink.core_api import CorruptMessage, PermanentError
from tidemill.spark_sink.envelope import UNAVAILABLE, EnvelopeOptions
from tidemill.spark_sink.fetch import read_range
from tidemill.spark_sink.offsets import OffsetRange
from tidemill.spark_sink.options import SourceOptions
from tidemill.spark_sink.rows import Rows


def read_batches(wanted: OffsetRange, options: SourceOptions, bytes_max: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield what the source's rows are for this range; of decoded changes at most about `bytes_max`.

    An error that will come again names the partition.
    """
    try:
        yield from _batches(wanted, options, bytes_max)
    except (PermanentError, CorruptMessage) as error:
        what = (type(error).__doc__ or "").rstrip(".")
        raise type(error)(f"{wanted.partition}: {what} ({error})") from None


def _batches(wanted: OffsetRange, options: SourceOptions, bytes_max: int | None) -> Iterator[pa.RecordBatch]:
    pieces = read_range(wanted, options)
    if options.decode is None:
        yield from (to_batch(wanted, rows) for rows in pieces)
        return
    chunks = decoded_chunks(
        wanted,
        pieces,
        options=envelope_options(options),
        keep_all=options.keep == "all",
        tolerate=options.tolerate_errors,
        bytes_max=bytes_max,
    )
    yield from (chunk.to_batch() for chunk in chunks)


def envelope_options(options: SourceOptions) -> EnvelopeOptions:
    """How change events are to be read."""
    return EnvelopeOptions(
        columns=parse_columns(options.columns) if options.columns else None,
        key_columns=options.key_columns,
        want_before=options.keep == "all",
        unavailable=options.unavailable or UNAVAILABLE,
    )


def to_batch(wanted: OffsetRange, rows: Rows) -> pa.RecordBatch:
    """The columns of `source.ROW_SCHEMA` for the records of one partition."""
    count = len(rows)
    columns = {
        "key": rows.key,
        "value": rows.value,
        "topic": pa.repeat(wanted.partition.topic, count),
        "partition": pa.repeat(pa.scalar(wanted.partition.partition, pa.int32()), count),
        "offset": rows.offset,
        "timestamp": rows.timestamp_ms.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        "timestampType": rows.timestamp_type,
    }
    if rows.headers is not None:
        columns["headers"] = rows.headers
    return pa.record_batch(columns)
