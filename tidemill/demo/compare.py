"""The verdict: is the warehouse table equal to the source table?

Both sides are read whole and brought to plain Python values by key; every column of every row is compared. A
difference is shown by key and column, not counted away.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

Row = Mapping[str, Any]
MAX_DIFFERENCES = 10  # enough to see the pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The outcome of one comparison."""

    source_rows: int
    warehouse_rows: int
    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """True when no row and no column differs."""
        return not self.differences


def read_source(dsn: str, table: str, key: str = "id") -> dict[Any, Row]:
    """Read the Postgres table by key."""
    schema, name = table.split(".")
    with psycopg.connect(dsn) as connection, connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        cursor.execute("SET TimeZone = 'UTC'")
        cursor.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, name)))
        return {row[key]: {column: plain(value) for column, value in row.items()} for row in cursor}


def read_warehouse(path: Path, key: str = "id") -> dict[Any, Row]:
    """Read the Delta table by key; empty when it does not exist yet. Columns that start with `_` are the sink's own."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(path)):
        return {}
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return {row[key]: {name: plain(value) for name, value in row.items() if not name.startswith("_")} for row in rows}


def plain(value: Any) -> Any:
    """One form for what the two sides spell differently: JSON as parsed data, instants in UTC, UUIDs as text."""
    match value:
        case UUID():
            return str(value)
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case memoryview() | bytearray():
            return bytes(value)
        case Decimal():
            return value.normalize()
        case dict() | list():
            return json.loads(json.dumps(value, default=str))
        case str() if value[:1] in ("{", "["):
            try:
                return json.loads(value)
            except ValueError:
                return value
    return value


def compare(source: Mapping[Any, Row], warehouse: Mapping[Any, Row]) -> Comparison:
    """Compare two tables read by `read_source` and `read_warehouse`."""
    differences = [f"row {key} is missing in the warehouse" for key in source.keys() - warehouse.keys()]
    differences += [f"row {key} should not be in the warehouse" for key in warehouse.keys() - source.keys()]
    for key in source.keys() & warehouse.keys():
        left, right = source[key], warehouse[key]
        differences += [
            f"row {key}, column {name}: source {left.get(name)!r}, warehouse {right.get(name)!r}"
            for name in sorted(left.keys() | right.keys())
            if name not in left or name not in right or left[name] != right[name]
        ]
    return Comparison(
        source_rows=len(source), warehouse_rows=len(warehouse), differences=tuple(sorted(differences)[:MAX_DIFFERENCES])
    )
