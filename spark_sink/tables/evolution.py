"""Whether the columns of a batch fit a table, and what has to be added

New columns are added, nullable. A column the batch lacks is null in its rows. A value may go into a wider column of its
own family (int into bigint, float into double, a shorter decimal into a longer one). Anything else stops the job with a
message: a guess would corrupt the table silently, and Delta can neither narrow nor rename what is written.
"""

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.spark_sink.offsets import SourceStopped


class SchemaConflict(SourceStopped):
    """A column's type changed in a way the table cannot follow."""


def missing_fields(table: pa.Schema, batch: pa.Schema) -> list[pa.Field]:
    """Columns of the batch that the table does not have."""
    return [each for each in batch if each.name not in table.names]


def fitted(rows: pa.Table, column: pa.Field) -> pa.ChunkedArray:
    """The column of `rows` as the table stores it, nulls where there is none; raises SchemaConflict."""
    if column.name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, column.type)])
    values = rows.column(column.name)
    if values.type.equals(column.type):
        return values
    if not widens(values.type, column.type) and values.null_count < len(values):
        raise SchemaConflict(
            f"column {column.name!r} is {column.type} in the table but {values.type} in the topic; "
            "start a new table (another table.path), or bring the source column back to its type"
        )
    if values.null_count == len(values):
        return pa.chunked_array([pa.nulls(rows.num_rows, column.type)])
    return pc.cast(values, column.type)


def widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether every value of `narrow` has its place in `wide`."""
    if narrow.equals(wide):
        return True
    if pa.types.is_signed_integer(narrow):
        wider = pa.types.is_signed_integer(wide) and narrow.bit_width <= wide.bit_width
        return bool(wider or (pa.types.is_float64(wide) and narrow.bit_width <= 32))
    if pa.types.is_float32(narrow):
        return bool(pa.types.is_float64(wide))
    if pa.types.is_decimal(narrow) and pa.types.is_decimal(wide):
        whole = narrow.precision - narrow.scale <= wide.precision - wide.scale
        return bool(whole and narrow.scale <= wide.scale)
    if pa.types.is_date32(narrow):
        return bool(pa.types.is_timestamp(wide) and wide.tz is None)
    if pa.types.is_list(narrow) and pa.types.is_list(wide):
        return widens(narrow.value_type, wide.value_type)
    if pa.types.is_struct(narrow) and pa.types.is_struct(wide):
        inner = {each.name: each.type for each in wide}
        return [each.name for each in narrow] == list(inner) and all(
            widens(each.type, inner[each.name]) for each in narrow
        )
    return False
