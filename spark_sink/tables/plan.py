"""What a batch of chunks adds to a table that already holds some of it

The table's positions decide alone. A row below its partition's position is in the table already and is dropped; a chunk
that begins above it would leave a hole and is refused. What remains is put in the order in which it happened and
reduced to the last change of each key, with the columns the table has.

Pure: positions come in, a plan goes out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.spark_sink.changes import KEPT, KEYS_METADATA, OFFSET, OP, Chunk, keys_of, last_per_key
from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.offsets import SourceStopped
from tidemill.spark_sink.tables.evolution import fitted, widens

APPEND_COLUMNS = (("_op", pa.string()), ("_topic", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64()))
"""What `mode=append` adds to each row."""


class OffsetGap(RuntimeError):
    """The batch begins after the table's position: records in between would never be seen."""


class TruncateUnordered(SourceStopped):
    """A truncate in one of several partitions: what of the others came before it cannot be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The part of a batch that a table does not have yet."""

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)  # new positions; empty: nothing to do
    truncated: tuple[TopicPartition, ...] = ()  # partitions in which the source table was truncated
    tables: tuple[tuple[TopicPartition, pa.Table], ...] = ()
    records: int = 0


def pending(chunks: Sequence[Chunk], positions: Mapping[TopicPartition, int], keep_all: bool = False) -> Pending:
    """Drop what the table has and, unless every change is kept, what a truncate made void.

    `chunks` are in order of their offsets. What lies behind a cut is left for the next query. Raises OffsetGap.
    """
    chunks = _joined(chunks)
    ends: dict[TopicPartition, int] = {}
    truncated_at: dict[TopicPartition, int] = {}
    records = 0
    for chunk in chunks:
        place = TopicPartition(chunk.topic, chunk.partition)
        position = ends.get(place, positions.get(place))
        if position is not None and chunk.start > position:
            raise OffsetGap(f"{place}: the batch begins at offset {chunk.start}, the table needs {position} next")
        if position is not None and chunk.end <= position:
            continue
        ends[place] = chunk.end
        records += chunk.records
        if not keep_all and chunk.truncated_at >= positions.get(place, 0):
            truncated_at[place] = max(truncated_at.get(place, -1), chunk.truncated_at)
    tables = []
    for chunk in chunks:
        place = TopicPartition(chunk.topic, chunk.partition)
        first = max(positions.get(place, 0), truncated_at.get(place, -1) + 1)
        for table in chunk.tables:
            rest = table if chunk.start >= first else table.filter(pc.greater_equal(table.column(OFFSET), first))
            if rest.num_rows:
                tables.append((place, rest))
    return Pending(ends=ends, truncated=tuple(truncated_at), tables=tuple(tables), records=records)


def _joined(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks of each partition up to its first cut; where several tasks read one, others go on behind it."""
    cut: set[TopicPartition] = set()
    found = []
    for chunk in chunks:
        place = TopicPartition(chunk.topic, chunk.partition)
        if place not in cut:
            found.append(chunk)
        if chunk.cut:
            cut.add(place)
    return found


def check_truncates(what: Pending, known: Iterable[TopicPartition]) -> None:
    """Refuse a truncate of a topic of which `known` or the batch has other partitions; raises TruncateUnordered."""
    for place in what.truncated:
        others = {each for each in (*known, *what.ends) if each.topic == place.topic and each != place}
        if others:
            raise TruncateUnordered(
                f"the source table of topic {place.topic} was truncated, which only partition {place.partition} of "
                f"{len(others) + 1} says, so rows of the others cannot be told to be older or newer; set "
                "truncate.policy=always to empty the table now, or load the topic into a new table.path"
            )


def merge_source(what: Pending, schema: pa.Schema) -> pa.Table:
    """The last change of each key: the columns of `schema`, `OP`, and a mark per column that keeps its old value."""
    marks = sorted({name for _, table in what.tables for name in table.column_names if name.startswith(KEPT)})
    parts = [_part(table, schema, marks) for _, table in what.tables]
    whole = pa.concat_tables(parts) if parts else _part(schema.empty_table(), schema, marks)
    keys = next((keys_of(table) for _, table in what.tables), ())
    reduced = last_per_key(whole.replace_schema_metadata({KEYS_METADATA: "\0".join(keys).encode()}))
    unused = [name for name in marks if not pc.any(reduced.column(name)).as_py()]
    return reduced.drop_columns(unused).replace_schema_metadata(None)


def _part(table: pa.Table, schema: pa.Schema, marks: Sequence[str]) -> pa.Table:
    count = table.num_rows
    columns = {OP: table.column(OP) if OP in table.column_names else pa.nulls(count, pa.string())}
    columns |= {each.name: fitted(table, each) for each in schema}
    for name in marks:
        columns[name] = table.column(name) if name in table.column_names else pa.repeat(pa.scalar(False), count)
    return pa.table(columns)


def append_source(what: Pending, schema: pa.Schema) -> pa.Table:
    """Every change as a row with the columns of `schema`, among them `APPEND_COLUMNS`."""
    names = {name for name, _ in APPEND_COLUMNS}
    parts = []
    for place, table in what.tables:
        count = table.num_rows
        columns = {each.name: fitted(table, each) for each in schema if each.name not in names}
        columns |= {
            "_op": table.column(OP),
            "_topic": pa.repeat(place.topic, count),
            "_partition": pa.repeat(pa.scalar(place.partition, pa.int32()), count),
            "_offset": table.column(OFFSET),
        }
        parts.append(pa.table(columns).select(schema.names))
    return pa.concat_tables(parts) if parts else schema.empty_table()


def row_schema(what: Pending) -> pa.Schema:
    """The columns of the rows in a batch; where two chunks disagree on a type, the one that has room for both."""
    fields: dict[str, pa.Field] = {}
    for _, table in what.tables:
        for each in table.schema:
            if each.name not in (OP, OFFSET) and not each.name.startswith(KEPT):
                known = fields.get(each.name)
                if known is None or widens(known.type, each.type):
                    fields[each.name] = pa.field(each.name, each.type)
    return pa.schema(list(fields.values()))
