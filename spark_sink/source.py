"""`format("tidemill")`: a topic as a Spark table and as a stream

The driver's half plans: it turns options and the ends of partitions into ranges of offsets and remembers nothing that
the stream's own offsets do not hold. The executors' half reads one range and yields Arrow batches with the columns of
Spark's own Kafka source.

With `decode=debezium` the rows are different: each is a chunk of change events that the executor has already parsed and
compacted (`changes`), as bytes in Arrow's IPC format, with the offsets it covers. The warehouse job reads that; it
spares every record one trip through the JVM, and lets each chunk have the columns of its own schema.

Works with PySpark 4.2 and later, whose streams tell the source how much it may read.

Spark runs several short Python processes to plan a query, and each imports this module. So it imports little; what
reads, writes or asks the cluster is imported where it is used.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidemill.spark_sink.core_api import SystemClock
from tidemill.spark_sink.offsets import OffsetRange, StreamOffset, backlog_rows, checked, limited, ranges, split
from tidemill.spark_sink.options import SourceOptions, parse_options

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.spark_sink.cluster import Cluster

ROW_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
CHUNK_SCHEMA = (
    "topic string, partition int, start bigint, end bigint, records bigint, refused bigint, complaint string, "
    "truncated_at bigint, cut boolean, topic_id string, changes binary"
)
HEADERS_SCHEMA = ", headers array<struct<key: string, value: binary>>"


class TidemillDataSource(DataSource):
    """Reads and writes topics of a Kafka-protocol cluster."""

    @classmethod
    def name(cls) -> str:
        """What goes into `format(...)`."""
        return "tidemill"

    def schema(self) -> str:
        """Columns in the order of Spark's Kafka source, or those of decoded chunks."""
        options = CaseInsensitiveDict(self.options)
        if options.get("decode"):
            return CHUNK_SCHEMA
        return ROW_SCHEMA + (HEADERS_SCHEMA if str(options.get("includeHeaders", "")).lower() == "true" else "")

    def reader(self, schema: StructType) -> "BatchReader":
        """For `spark.read`."""
        return BatchReader(parse_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> "StreamReader":
        """For `spark.readStream`."""
        return StreamReader(parse_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For `df.write`."""
        from tidemill.spark_sink.writer import BatchWriter, parse_writer_options

        return BatchWriter(parse_writer_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """For `df.writeStream`."""
        from tidemill.spark_sink.writer import StreamWriter, parse_writer_options

        return StreamWriter(parse_writer_options(self.options), schema)  # complete mode overwrites by appending all


class RangePartition(InputPartition):
    """One task's range."""

    def __init__(self, wanted: OffsetRange, bytes_max: int | None = None) -> None:
        super().__init__(str(wanted))
        self.wanted = wanted
        self.bytes_max = bytes_max


def _planned(start: StreamOffset, end: StreamOffset, options: SourceOptions) -> list[RangePartition]:
    pieces = split(ranges(start, end), options.min_partitions, options.max_records_per_partition)
    share = None if options.decoded_bytes_max is None else max(1, options.decoded_bytes_max // max(1, len(pieces)))
    return [RangePartition(piece, share) for piece in pieces]


def _read(partition: InputPartition, options: SourceOptions) -> "Iterator[pa.RecordBatch]":
    from tidemill.spark_sink.reading import read_batches  # see the module's docstring

    assert isinstance(partition, RangePartition)
    return read_batches(partition.wanted, options, partition.bytes_max)


def _cluster(options: SourceOptions) -> "Cluster":
    from tidemill.spark_sink.cluster import Cluster

    return Cluster(options)


class BatchReader(DataSourceReader):
    """Everything between two positions, fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Resolve both positions and cut what lies between them."""
        cluster = _cluster(self._options)
        start, end = cluster.resolve(self._options.starting), cluster.resolve(self._options.ending)
        return _planned(start, checked(start, end, self._options.fail_on_data_loss), self._options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Read one range."""
        return _read(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream whose whole state is its offsets."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._open: Cluster | None = None
        self._target: StreamOffset | None = None  # where an availableNow query ends
        self._latest: StreamOffset | None = None
        self._last_batch_at = self._clock.monotonic()

    @property
    def _cluster(self) -> "Cluster":
        if self._open is None:
            self._open = _cluster(self._options)
        return self._open

    def __getstate__(self) -> dict[str, Any]:
        """Spark sends the reader to executors; connections stay behind."""
        return {**self.__dict__, "_open": None}

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts."""
        return self._cluster.resolve(self._options.starting).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of an availableNow query."""
        self._target = self._cluster.ends(self._options.selection)

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options allow per trigger."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; `start` itself when there is too little to read."""
        begin = StreamOffset.from_json(start)
        self._latest = self._target or self._cluster.ends(self._options.selection)
        end = checked(begin, self._latest, self._options.fail_on_data_loss)
        if not isinstance(limit, ReadAllAvailable) and self._target is None and self._too_little(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        if end.offsets == begin.offsets:
            return start
        self._last_batch_at = self._clock.monotonic()
        return end.to_json()

    def _too_little(self, begin: StreamOffset, end: StreamOffset) -> bool:
        least = self._options.min_offsets_per_trigger
        waited_ms = (self._clock.monotonic() - self._last_batch_at) * 1000
        return least is not None and backlog_rows(begin, end) < least and waited_ms < self._options.max_trigger_delay_ms

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the partitions, for the query's progress."""
        return self._latest.to_json() if self._latest is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges between two offsets: a pure function of them."""
        return _planned(StreamOffset.from_json(start), StreamOffset.from_json(end), self._options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Read one range."""
        return _read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Publish the position of `kafka.group.id`, one batch late, for lag tools."""
        if self._options.group_id is not None:
            self._cluster.publish(self._options.group_id, StreamOffset.from_json(end))

    def stop(self) -> None:
        """Let go of the connections."""
        self._open = None
