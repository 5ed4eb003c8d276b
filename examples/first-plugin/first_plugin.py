"""A source and a sink in a dozen lines each: CSV file -> topic -> SQLite table"""

import csv
import sqlite3
from collections.abc import Iterator
from itertools import islice

from pydantic import BaseModel, Field

from tidemill import InvalidConfig, Pos, Record, check, sink, source


class CsvSettings(BaseModel):
    """Settings of the source: what `GET /connector-plugins/CsvRows/config` shows."""

    file: str = Field(description="CSV file with a header line")
    topic: str = Field(description="Topic to write to")
    key: str = Field(default="id", description="Column that becomes the record's key")


@source("CsvRows", version="1.0")
def csv_rows(cfg: CsvSettings, pos: Pos) -> Iterator[Record]:
    """Reads a CSV file once, one record per row."""
    here = pos.source_partition(file=cfg.file)
    done = here.get("rows", 0)
    with open(cfg.file, newline="", encoding="utf-8") as file:
        for number, row in enumerate(islice(csv.DictReader(file), done, None), done + 1):
            yield here.record(topic=cfg.topic, key=row[cfg.key], value=row, offset={"rows": number})


@check(csv_rows)
def check_csv(cfg: CsvSettings) -> None:
    """Looks at the file before the connector is accepted."""
    try:
        with open(cfg.file, newline="", encoding="utf-8") as file:
            columns = next(csv.reader(file), [])
    except OSError as error:
        raise InvalidConfig("file", f"{cfg.file}: {error.strerror}.") from error
    if cfg.key not in columns:
        raise InvalidConfig("key", f"{cfg.file} has no column {cfg.key!r}.", f"Use one of {', '.join(columns)}.")


class SqliteSettings(BaseModel):
    """Settings of the sink."""

    database: str = Field(description="SQLite database file")
    table: str = Field(description="Table with columns key and value", pattern=r"^\w+$")


def database(cfg: SqliteSettings) -> Iterator[sqlite3.Connection]:
    """Opens the database once for each task; what follows the yield runs when the task ends."""
    connection = sqlite3.connect(cfg.database)
    connection.execute(f"CREATE TABLE IF NOT EXISTS {cfg.table} (key TEXT PRIMARY KEY, value TEXT)")
    yield connection
    connection.close()


@sink("SqliteTable", version="1.0", setup=database)
def sqlite_table(cfg: SqliteSettings, connection: sqlite3.Connection, batch: list[Record]) -> None:
    """Keeps the last value of every key; a tombstone deletes its row."""
    with connection:  # one transaction: the batch is in the table, or none of it is
        for record in batch:
            if record.value is None:
                connection.execute(f"DELETE FROM {cfg.table} WHERE key = ?", (record.key,))
            else:
                connection.execute(f"REPLACE INTO {cfg.table} VALUES (?, ?)", (record.key, record.value))
