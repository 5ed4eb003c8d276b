"""The changes of a range of offsets, reduced to the last one of each key

Executors and driver do the same thing: take change events in the order of their offsets and keep, per key, what
matters. That is the last change, with one exception: an update may say of a large column that it did not change and is
not there (a TOAST column of PostgreSQL). Then the value of an earlier change in the same range is taken, and if there
is none the column is marked, so that the table keeps what it has.

A truncate voids everything before it in its partition. A change of the primary key arrives as delete and create.

A record that is no change event, or one without a key where the table needs one, stops the job, or is passed over and
counted where `errors.tolerance` says so.

A `Chunk` is the result for some offsets of one partition, of so many records or so many bytes, whichever is reached
first. A task whose chunks have reached its share of a batch's bytes ends before the end of its range (`cut`): whoever
asked then begins anew where it ended, with fewer records. A chunk travels as bytes in Arrow's IPC format, one table for
each schema that occurred, with the columns of the row and, beside them, the three kinds of `_MARKS`.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.spark_sink.column_types import Kind
from tidemill.spark_sink.envelope import UPSERT_OPS, BadRecord, EnvelopeOptions, EnvelopeReader, Events, Projector
from tidemill.spark_sink.offsets import OffsetRange, SourceStopped
from tidemill.spark_sink.rows import Rows

OP, OFFSET, KEPT = "__op", "__offset", "__kept:"  # columns beside the row's own; KEPT is followed by a column's name
KEYS_METADATA = b"tidemill.keys"
CHUNK_ROWS = 65_536  # records per chunk: parses well
CHUNK_BYTES = 16 * 1024 * 1024  # keys and values per chunk: bounds what one row of the result holds, beside one piece


_TOLERATE = "set errors.tolerance=all to pass over such records"


class NoKey(SourceStopped):
    """A change has no key although the table needs one."""


class BadChange(SourceStopped):
    """A record that stops the job; the message names topic, partition and offset."""


class Chunk(NamedTuple):
    """Changes of one partition in `start <= offset < end`."""

    topic: str
    partition: int
    start: int
    end: int
    records: int  # read, tombstones included
    refused: int  # records passed over because they could not be used
    truncated_at: int  # offset of the last truncate, -1 without one
    tables: tuple[pa.Table, ...]
    complaint: str = ""  # topic, partition, offset and reason of the first record that was refused
    cut: bool = False  # the range goes on behind `end` and was not read
    topic_id: str = ""  # of the topic that was read: offsets of one made anew mean something else

    def to_batch(self) -> pa.RecordBatch:
        """One row of `source.CHUNK_SCHEMA`."""
        return pa.record_batch(
            {
                "topic": pa.array([self.topic]),
                "partition": pa.array([self.partition], pa.int32()),
                "start": pa.array([self.start], pa.int64()),
                "end": pa.array([self.end], pa.int64()),
                "records": pa.array([self.records], pa.int64()),
                "refused": pa.array([self.refused], pa.int64()),
                "complaint": pa.array([self.complaint], pa.string()),
                "truncated_at": pa.array([self.truncated_at], pa.int64()),
                "cut": pa.array([self.cut], pa.bool_()),
                "topic_id": pa.array([self.topic_id], pa.string()),
                "changes": pa.array([to_bytes(self.tables)], pa.binary()),
            }
        )

    @property
    def size_bytes(self) -> int:
        """What the changes take in memory."""
        return sum(table.nbytes for table in self.tables)


def to_bytes(tables: Iterable[pa.Table]) -> bytes:
    """Tables as Arrow IPC streams, one behind the other."""
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return bytes(sink.getvalue())


def from_bytes(data: pa.Buffer | bytes) -> tuple[pa.Table, ...]:
    """Read what `to_bytes` wrote."""
    reader = pa.BufferReader(data)
    tables = []
    while reader.tell() < reader.size():
        with pa.ipc.open_stream(reader) as stream:
            tables.append(stream.read_all())
    return tuple(tables)


def chunks_of(rows: pa.Table) -> list[Chunk]:
    """The chunks in rows of `source.CHUNK_SCHEMA`, in order of their offsets."""
    plain = rows.drop_columns(["changes"]).to_pylist()
    payloads = [scalar.as_buffer() for scalar in rows.column("changes")]
    found = [Chunk(**each, tables=from_bytes(data)) for each, data in zip(plain, payloads, strict=True)]
    return sorted(found, key=lambda chunk: (chunk.topic, chunk.partition, chunk.start))


def keys_of(table: pa.Table) -> tuple[str, ...]:
    """Names of a table's key columns."""
    return tuple((table.schema.metadata or {}).get(KEYS_METADATA, b"").decode().split("\0")) if _has_keys(table) else ()


def _has_keys(table: pa.Table) -> bool:
    return bool((table.schema.metadata or {}).get(KEYS_METADATA))


def decoded_chunks(
    wanted: OffsetRange,
    pieces: Iterable[Rows],
    *,
    options: EnvelopeOptions,
    keep_all: bool = False,
    tolerate: bool = False,
    bytes_max: int | None = None,
    project: Projector | None = None,
) -> Iterator[Chunk]:
    """Parse the records of a range and reduce them, chunk by chunk; the chunks cover the range without a gap.

    Once the chunks have `bytes_max` bytes of changes they end, the last one `cut` unless it is the range's last.
    """
    build = _ChunkBuilder(wanted, options, keep_all, tolerate, EnvelopeReader(options, project))
    left = bytes_max
    for rows in pieces:
        build.add(rows)
        if build.records < CHUNK_ROWS and build.size_bytes < min(CHUNK_BYTES, CHUNK_BYTES if left is None else left):
            continue
        end = rows.offset[-1].as_py() + 1
        chunk = build.finish(end)
        if left is not None:
            left -= chunk.size_bytes
            if left <= 0 and end < wanted.end:
                yield chunk._replace(cut=True)
                return
        yield chunk
    yield build.finish(wanted.end)


class _ChunkBuilder:
    """Collects the events of the chunk at hand."""

    def __init__(
        self, wanted: OffsetRange, options: EnvelopeOptions, keep_all: bool, tolerate: bool, reader: EnvelopeReader
    ) -> None:
        self._wanted = wanted
        self._options = options
        self._keep_all = keep_all
        self._tolerate = tolerate
        self._reader = reader
        self._start = wanted.start
        self._clear()

    def _clear(self) -> None:
        self.records = 0
        self.size_bytes = 0  # of keys and values as they were read
        self._refused = 0
        self._complaint = ""
        self._truncated_at = -1
        self._tables: list[pa.Table] = []

    def add(self, rows: Rows) -> None:
        """Take in the next records; raises BadChange, NoKey."""
        self.records += len(rows)
        self.size_bytes += rows.key.nbytes + rows.value.nbytes
        try:
            self._add(rows)
        except BadRecord as error:
            if not self._tolerate:
                where = f"{self._wanted.partition}: {error}"
                raise BadChange(f"{where}; {_TOLERATE}") from None
            self._add_tolerantly(rows, error)

    def _add(self, rows: Rows) -> None:
        found = [self._table(events) for events in self._reader.read(rows)]
        for events_table, truncated_at, keyless in found:
            self._truncated_at = max(self._truncated_at, truncated_at)
            if keyless is not None:
                self._refuse(keyless.records, f"{self._wanted.partition}: {keyless.reason}")
            if events_table.num_rows:
                self._tables.append(events_table)

    def _add_tolerantly(self, rows: Rows, error: BadRecord) -> None:
        """Halve until the bad records stand alone."""
        if len(rows) == 1:
            self._refuse(1, f"{self._wanted.partition}: {error}")
            return
        middle = len(rows) // 2
        for part in (slice(0, middle), slice(middle, len(rows))):
            half = Rows(*(None if column is None else column[part] for column in rows))
            try:
                self._add(half)
            except BadRecord as again:
                self._add_tolerantly(half, again)

    def _refuse(self, count: int, complaint: str) -> None:
        self._refused += count
        self._complaint = self._complaint or complaint

    def _table(self, events: Events) -> "tuple[pa.Table, int, _Keyless | None]":
        keys = self._keys(events)
        truncates = events.offset.filter(pc.equal(events.op, "t"))
        truncated_at = truncates[-1].as_py() if len(truncates) else -1
        table = changes_table(events, keys, self._options.unavailable, self._keep_all)
        if self._keep_all:
            return table, truncated_at, None
        whole, keyless = _with_keys(table, keys, self._wanted)
        if keyless is not None and not self._tolerate:
            raise NoKey(f"{self._wanted.partition}: {keyless.reason}; {keyless.remedy}")
        return whole, truncated_at, keyless

    def _keys(self, events: Events) -> tuple[str, ...]:
        if self._options.key_columns:
            return self._options.key_columns
        return tuple(each.name for each in events.key.type) if events.key is not None else ()

    def finish(self, end: int) -> Chunk:
        """The chunk up to `end`; the next one starts there."""
        tables = unified(self._tables)
        if not self._keep_all:
            tables = [last_per_key(_after(table, self._truncated_at)) for table in tables]
        chunk = Chunk(
            topic=self._wanted.partition.topic,
            partition=self._wanted.partition.partition,
            start=self._start,
            end=end,
            records=self.records,
            refused=self._refused,
            complaint=self._complaint,
            truncated_at=self._truncated_at,
            tables=tuple(table for table in tables if table.num_rows),
            topic_id=str(self._wanted.topic_id),
        )
        self._start = end
        self._clear()
        return chunk


def _after(table: pa.Table, offset: int) -> pa.Table:
    return table if offset < 0 else table.filter(pc.greater(table.column(OFFSET), offset))


def changes_table(events: Events, keys: Sequence[str], unavailable: str, keep_all: bool) -> pa.Table:
    """The columns of the row, the op, the offset and the marks of columns whose value was not sent."""
    is_change = pc.is_in(events.op, pa.array([*UPSERT_OPS, "d"]))
    row = events.row
    if keep_all and events.before is not None:
        row = pc.if_else(pc.equal(events.op, "d"), events.before, row)
    columns = dict(zip((each.name for each in row.type), row.flatten(), strict=True))
    marks = {}
    for name, kind in events.row_type.fields.items():
        mark = _unavailable(columns[name], kind.kind, unavailable)
        if mark is not None:
            marks[KEPT + name] = mark
            columns[name] = pc.if_else(mark, pa.scalar(None, columns[name].type), columns[name])
    columns |= _key_columns(events, keys, columns)
    table = pa.table({OP: events.op, OFFSET: events.offset, **columns, **marks}).filter(is_change)
    return table.replace_schema_metadata({KEYS_METADATA: "\0".join(keys).encode()})


def _key_columns(events: Events, keys: Sequence[str], row: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Key columns from the message key; from the row, old or new, where the table's keys were configured."""
    if events.key is not None:
        return dict(zip((each.name for each in events.key.type), events.key.flatten(), strict=True))
    old = (
        dict(zip((each.name for each in events.before.type), events.before.flatten(), strict=True))
        if events.before
        else {}
    )
    return {name: pc.coalesce(row[name], old[name]) if name in old else row[name] for name in keys if name in row}


class _Keyless(NamedTuple):
    """Changes whose row cannot be found in a table: how many, why the first, and what would help."""

    records: int
    reason: str
    remedy: str


def _with_keys(table: pa.Table, keys: Sequence[str], wanted: OffsetRange) -> tuple[pa.Table, _Keyless | None]:
    """The changes that have a value for each key column, and what is to be said of the others.

    Raises NoKey for a key column that does not exist at all: that is the setting's fault, not a record's.
    """
    if not table.num_rows:
        return table, None
    if not keys:
        reason = f"the record at offset {table.column(OFFSET)[0]} has no key, so its row cannot be found in the table"
        return table.slice(0, 0), _Keyless(
            table.num_rows, reason, f"set key.columns, or mode=append to keep every change, or {_TOLERATE}"
        )
    for name in keys:
        if name not in table.column_names:
            raise NoKey(f"{wanted.partition}: key column {name!r} is not among the columns of the changes")
    lacking = [name for name in keys if table.column(name).null_count]
    if not lacking:
        return table, None
    whole = functools.reduce(pc.and_, (pc.is_valid(table.column(name)) for name in lacking))
    at = pc.index(whole, pa.scalar(False)).as_py()
    name = next(name for name in lacking if not table.column(name)[at].is_valid)
    reason = f"the record at offset {table.column(OFFSET)[at]} has no value for key {name!r}"
    kept = table.filter(whole)
    return kept, _Keyless(table.num_rows - kept.num_rows, reason, _TOLERATE)


def _unavailable(column: pa.Array, kind: Kind, placeholder: str) -> pa.Array | None:
    """Where a column holds the placeholder for "unchanged, not sent"; None when nowhere."""
    if pa.types.is_string(column.type):
        mark = pc.equal(column, placeholder)
    elif kind is Kind.BYTES:
        mark = pc.equal(column, placeholder.encode())
    elif pa.types.is_list(column.type):
        mark = _unavailable_list(column, placeholder)
    else:
        return None
    mark = pc.fill_null(mark, False)
    return mark if pc.any(mark).as_py() else None


def _unavailable_list(column: pa.Array, placeholder: str) -> pa.Array:
    """An array column's placeholder is an array: of the text, or of its characters' numbers."""
    items = column.type.value_type
    if pa.types.is_string(items) or pa.types.is_binary(items):
        expected: list[object] = [placeholder if pa.types.is_string(items) else placeholder.encode()]
    elif pa.types.is_integer(items):
        expected = list(placeholder.encode())
    else:
        return pa.array(np.zeros(len(column), dtype=bool))
    likely = pc.fill_null(pc.equal(pc.list_value_length(column), len(expected)), False).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(likely)
    found = column.take(pa.array(rows))
    if len(expected) == 1:
        same = pc.fill_null(pc.equal(pc.list_element(found, 0), expected[0]), False).to_numpy(zero_copy_only=False)
    else:
        same = np.array([value == expected for value in found.to_pylist()], dtype=bool)
    likely[rows] = same
    return pa.array(likely)


def unified(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Join tables whose columns agree, in order of offset; others stay apart."""
    groups: list[list[pa.Table]] = []
    for table in tables:
        for group in groups:
            if _agree(group[0], table):
                group.append(table)
                break
        else:
            groups.append([table])
    joined = []
    for group in groups:
        whole = pa.concat_tables(group, promote_options="default")
        whole = _fill_marks(whole)
        joined.append(whole.sort_by(OFFSET) if len(groups) > 1 or len(group) > 1 else whole)
    return joined


def _agree(left: pa.Table, right: pa.Table) -> bool:
    def own(table: pa.Table) -> dict[str, pa.DataType]:
        return {each.name: each.type for each in table.schema if not each.name.startswith(KEPT)}

    return own(left) == own(right) and keys_of(left) == keys_of(right)


def _fill_marks(table: pa.Table) -> pa.Table:
    for index, name in enumerate(table.column_names):
        if name.startswith(KEPT) and table.column(name).null_count:
            table = table.set_column(index, name, pc.fill_null(table.column(name), False))
    return table


ROW = "__row"


def last_per_key(table: pa.Table) -> pa.Table:
    """The last change of each key, in order of offset; `table` must be in the order in which the changes happened."""
    keys = list(keys_of(table))
    if not table.num_rows:
        return table
    numbered = table.select(keys).append_column(ROW, pa.array(np.arange(table.num_rows)))
    last = numbered.group_by(keys, use_threads=False).aggregate([(ROW, "max")]).column(f"{ROW}_max")
    rows = np.sort(last.to_numpy())
    if len(rows) == table.num_rows:
        return table
    marked = [name for name in table.column_names if name.startswith(KEPT)]
    kept = table.take(pa.array(rows))
    if not any(pc.any(kept.column(name)).as_py() for name in marked):
        return kept
    return _with_earlier_values(table, numbered, keys, marked, rows)


def _with_earlier_values(
    table: pa.Table,
    numbered: pa.Table,
    keys: list[str],
    marked: list[str],
    rows: "np.ndarray[tuple[int], np.dtype[np.int64]]",
) -> pa.Table:
    """Give columns that were not sent the value of the latest earlier change that has it."""
    marks = [table.column(name).to_numpy() for name in marked]
    affected = rows[np.logical_or.reduce(marks)[rows]]
    history = numbered.group_by(keys, use_threads=False).aggregate([(ROW, "max"), (ROW, "list")])
    history = history.filter(pc.is_in(history.column(f"{ROW}_max"), pa.array(affected)))
    earlier = {
        last: sorted(changes)[:-1]
        for last, changes in zip(
            history.column(f"{ROW}_max").to_pylist(), history.column(f"{ROW}_list").to_pylist(), strict=True
        )
    }
    op = table.column(OP).to_pylist()
    result = table.take(pa.array(rows))
    for mark_name, mark in zip(marked, marks, strict=True):
        name = mark_name.removeprefix(KEPT)
        source = rows.copy()  # the row each value is taken from
        still = np.zeros(len(rows), dtype=bool)
        for position in np.flatnonzero(mark[rows]).tolist():
            before = reversed(earlier[rows[position]])
            origin = next((row for row in before if op[row] == "d" or not mark[row]), None)
            if origin is None:
                still[position] = True  # the table has it
            else:
                source[position] = origin  # a delete's row is null, which is right: nothing is left of it
        column = table.column(name).take(pa.array(source))
        result = result.set_column(result.column_names.index(name), name, column)
        result = result.set_column(result.column_names.index(mark_name), mark_name, pa.array(still))
    return result
