"""Values that were not sent and that the table does not have either

An update may say of a large column that it did not change and is not there; the table then keeps what it has. If it
lacks the row, because the topic was compacted or read from somewhere in the middle, there is no value to keep: the
source is the only place that still has it. Such rows are found before the commit, by one look at the key columns of
the files that may hold them.
"""

import functools
import operator
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from tidemill.spark_sink.changes import KEPT, OFFSET
from tidemill.spark_sink.offsets import SourceStopped
from tidemill.spark_sink.tables.plan import Pending

_NAMED_MAX = 1_000  # keys looked for one by one; more numbers or times are looked for between the least and the last


class ValueMissing(SourceStopped):
    """An update leaves out a value that the table does not have."""


def values_missing(table: DeltaTable, source: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows of a merge's source that keep a value of a row which the table does not have."""
    marks = [source.column(name) for name in source.column_names if name.startswith(KEPT)]
    rows = source.filter(functools.reduce(pc.or_, marks)) if marks else source.slice(0, 0)
    if not rows.num_rows or not keys:
        return rows
    wanted = rows.select(list(keys))
    files = table.to_pyarrow_dataset()
    known = files.to_table(columns=list(keys), filter=_filter(wanted)).cast(wanted.schema)
    numbered = wanted.append_column("__at", pa.array(range(rows.num_rows)))
    at = numbered.join(known, list(keys), join_type="left anti").column("__at")
    return rows.take(at.combine_chunks().sort())


def _filter(wanted: pa.Table) -> pc.Expression | None:
    """What the rows of the wanted keys fulfil, for leaving out files; None when nothing can be said."""
    conditions = []
    for name in wanted.column_names:
        column = wanted.column(name)
        if not (pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)):
            continue  # text is not comparable with a file's own statistics, which are of another Arrow type
        if len(column) <= _NAMED_MAX:
            conditions.append(pc.field(name).isin(pc.unique(column)))
        else:
            edges = pc.min_max(column)
            conditions.append((pc.field(name) >= edges["min"]) & (pc.field(name) <= edges["max"]))
    return functools.reduce(operator.and_, conditions) if conditions else None


def complaint(what: Pending, row: pa.Table, keys: Sequence[str], path: str) -> str:
    """Which update the first of the rows is: topic, partition, offset, columns and key."""
    key = {name: row.column(name)[0].as_py() for name in keys}
    columns = [
        name.removeprefix(KEPT) for name in row.column_names if name.startswith(KEPT) and row.column(name)[0].as_py()
    ]
    where = next(
        (
            f"{place}: the update at offset {found.column(OFFSET)[-1]}"
            for place, table in reversed(what.tables)
            if set(keys) <= set(table.column_names)
            for found in [table.filter(_same(table, row, keys))]
            if found.num_rows
        ),
        "an update",
    )
    shown = ", ".join(f"{name}={value!r}" for name, value in key.items())
    return f"{where} leaves out {', '.join(columns)} as unchanged, and table {path} has no row {shown} to keep it from"


def _same(table: pa.Table, row: pa.Table, keys: Sequence[str]) -> pa.ChunkedArray:
    return functools.reduce(
        pc.and_, (pc.equal(table.column(name), row.column(name)[0].cast(table.column(name).type)) for name in keys)
    )
