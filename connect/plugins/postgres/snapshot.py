"""The initial load: every captured row as of one moment, in records

The moment is that of a replication slot: `CREATE_REPLICATION_SLOT … EXPORT_SNAPSHOT` names a snapshot that shows
exactly what was committed before the position at which the slot's stream begins. The rows are read in it through SQL
cursors, so nothing is missing between snapshot and stream and nothing comes twice.

If the connector's slot exists already, a temporary slot gives the snapshot and its position instead, and the
connector's slot is streamed from there. So a snapshot that was interrupted simply starts again: the old one ended with
its connection, the sink keeps or overwrites the rows it has.

Pages are as large as `snapshot.fetch.size` allows, fewer rows where rows are wide, so that a page stays near
`PAGE_BYTES`. One page is read ahead, because the last row of a table, and of all tables, is marked as such.
"""

import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import pq, sql

from tidemill.connect.api import EncodedBatch, SourcePartition
from tidemill.connect.plugins.postgres.catalog import PublishedTable
from tidemill.connect.plugins.postgres.codegen import RowCode, generate
from tidemill.connect.plugins.postgres.envelope import Envelope, Format, Moment
from tidemill.connect.plugins.postgres.lsn import parse_lsn
from tidemill.connect.plugins.postgres.table import CatalogTable, Shaper, relation_of

PAGE_BYTES: Final = 4 * 1024 * 1024
PAGE_ROWS_FIRST: Final = 200
"""Rows of a table's first page, before anything is known about their width."""
PAGE_ROWS_MAX: Final = 5_000
"""More rows at once only cost memory: fetching in pages of 100 to 5,000 rows is equally fast."""


WAITING_INTERVAL_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSnapshot:
    """A snapshot that others may look through while the connection that made it stays silent."""

    name: str
    lsn: int


def create_slot(
    connection: psycopg.Connection[Any],
    name: str,
    *,
    temporary: bool = False,
    failover: bool = False,
    export: bool = True,
    waiting: Callable[[], None] = lambda: None,
) -> ExportedSnapshot:
    """Make a slot on a replication connection and return the snapshot it exports.

    The server waits for every transaction that is writing now to end. `waiting` is called while it does, and ends the
    attempt by raising.
    """
    modern = connection.info.server_version >= 150000
    options = [sql.SQL("SNAPSHOT 'export'" if export else "SNAPSHOT 'nothing'")]
    if failover and not temporary and connection.info.server_version >= 170000:
        options.append(sql.SQL("FAILOVER true"))
    command = sql.SQL("CREATE_REPLICATION_SLOT {name}{temporary} LOGICAL pgoutput {options}").format(
        name=sql.Identifier(name),
        temporary=sql.SQL(" TEMPORARY" if temporary else ""),
        options=sql.SQL("({})").format(sql.SQL(", ").join(options))
        if modern
        else sql.SQL("EXPORT_SNAPSHOT" if export else "NOEXPORT_SNAPSHOT"),
    )
    result = _patiently(connection, command.as_bytes(connection), waiting)
    position, snapshot = result.get_value(0, 1), result.get_value(0, 2)
    return ExportedSnapshot(name=(snapshot or b"").decode(), lsn=parse_lsn((position or b"").decode()))


def _patiently(connection: psycopg.Connection[Any], command: bytes, waiting: Callable[[], None]) -> pq.abc.PGresult:
    """Run a command that may take long, calling `waiting` all the while; what it raises cancels the command."""
    pgconn = connection.pgconn
    pgconn.send_query(command)
    pgconn.flush()
    try:
        while pgconn.is_busy():
            readable, _, _ = select.select([pgconn.socket], [], [], WAITING_INTERVAL_S)
            if readable:
                pgconn.consume_input()
            else:
                waiting()
    except BaseException:
        connection.cancel_safe(timeout=WAITING_INTERVAL_S)
        connection.close()
        raise
    result = pgconn.get_result()
    while pgconn.get_result() is not None:
        continue
    if result is None or result.status != pq.ExecStatus.TUPLES_OK:
        raise psycopg.errors.error_from_result(result) if result is not None else psycopg.OperationalError("no answer")
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTable:
    """A table to read, and what the publication lets through of it."""

    table: CatalogTable
    published: PublishedTable | None = None


@dataclass(slots=True)
class _Reading:
    """A table being read: its code and constant pieces."""

    table: CatalogTable
    code: RowCode
    envelope: Envelope
    query: sql.Composed


@dataclass(frozen=True, slots=True)
class _Page:
    reading: _Reading
    result: pq.abc.PGresult
    number: int  # of the page within its table, from 0


class Snapshot:
    """Reads tables page by page; every `read` returns the records of one page."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        *,
        exported: ExportedSnapshot,
        tables: Sequence[SnapshotTable],
        shaper: Shaper,
        form: Format,
        partition: SourcePartition,
        fetch_rows: int,
    ) -> None:
        self.lsn = exported.lsn
        self.rows = 0
        self.tables_total = len(tables)
        self.tables_done = 0
        self.current = ""
        self._connection = connection
        self._partition = partition
        self._fetch_rows = min(fetch_rows, PAGE_ROWS_MAX)
        self._readings = [_reading(each, shaper, form) for each in tables]
        self._pages: Iterator[_Page] | None = None
        self._next: _Page | None = None
        self.xid, self.time_us = self._begin(exported.name)

    def read(self, now_ms: int) -> EncodedBatch | None:
        """Return the records of the next page, None when all tables are read."""
        if self._pages is None:
            self._pages = self._all_pages()
            self._next = next(self._pages, None)
        page = self._next
        if page is None:
            return None
        self._next = next(self._pages, None)
        return self._encode(page, self._next, now_ms)

    @property
    def exhausted(self) -> bool:
        """Whether every row has been returned."""
        return self._pages is not None and self._next is None

    def finish(self) -> None:
        """Let go of the snapshot."""
        self._connection.execute("COMMIT")

    def _begin(self, name: str) -> tuple[int, int]:
        """Look through the exported snapshot; return a transaction number and the time, for the records."""
        self._connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
        self._connection.execute("SET LOCAL statement_timeout = 0")
        row = self._connection.execute(
            "SELECT (txid_snapshot_xmax(txid_current_snapshot()) - 1) & 4294967295, "
            "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        ).fetchone()
        assert row is not None, "a query without a table has a row"
        return int(row[0]), int(row[1])

    def _all_pages(self) -> Iterator[_Page]:
        for reading in self._readings:
            self.current = f"{reading.table.schema}.{reading.table.table}"
            self._connection.execute(sql.SQL("DECLARE tidemill_snapshot NO SCROLL CURSOR FOR {}").format(reading.query))
            yield from self._table_pages(reading)
            self._connection.execute("CLOSE tidemill_snapshot")
            self.tables_done += 1

    def _table_pages(self, reading: _Reading) -> Iterator[_Page]:
        pgconn = self._connection.pgconn
        rows = min(PAGE_ROWS_FIRST, self._fetch_rows)
        number = 0
        while True:
            result = pgconn.exec_(b"FETCH %d FROM tidemill_snapshot" % rows)
            if result.status != pq.ExecStatus.TUPLES_OK:
                raise psycopg.errors.error_from_result(result)
            if result.ntuples == 0:
                return
            yield _Page(reading, result, number)
            if result.ntuples < rows:
                return
            number += 1
            rows = self._rows_for(result)

    def _rows_for(self, result: pq.abc.PGresult) -> int:
        """Return how many rows like these make a page; at most four times as many as now."""
        sample = range(0, result.ntuples, max(1, result.ntuples // 50))
        size = sum(len(result.get_value(row, column) or b"") for row in sample for column in range(result.nfields))
        fitting = PAGE_BYTES * len(sample) // max(size, 1)
        return max(1, min(fitting, result.ntuples * 4, self._fetch_rows))

    def _encode(self, page: _Page, following: _Page | None, now_ms: int) -> EncodedBatch:
        """Return a page's records; its first and last row may need a marker of their own."""
        count = page.result.ntuples
        last_in_table = following is None or following.reading is not page.reading
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        first_marker = "true"
        if page.number == 0:
            first_marker = "first" if page.reading is self._readings[0] else "first_in_data_collection"
        last_marker = "last" if following is None else "last_in_data_collection"
        ranges: list[tuple[int, int, str]] = []
        if count == 1 and last_in_table:
            only_first = first_marker == "first" and following is not None
            ranges.append((0, 1, "first" if only_first else last_marker))
        else:
            end = count - 1 if last_in_table else count
            begin = 1 if page.number == 0 else 0
            ranges += [(0, 1, first_marker)] if begin else []
            ranges.append((begin, end, "true"))
            ranges += [(end, count, last_marker)] if last_in_table else []
        for begin, end, marker in ranges:
            self._encode_rows(page, begin, end, marker, now_ms, keys, values)
        self.rows += count
        return EncodedBatch(
            topic=page.reading.envelope.shape.topic, keys=keys, values=values, partition=self._partition
        )

    def _encode_rows(
        self,
        page: _Page,
        begin: int,
        end: int,
        marker: str,
        now_ms: int,
        keys: list[bytes | None],
        values: list[bytes | None],
    ) -> None:
        envelope = page.reading.envelope
        moment = Moment(xid=self.xid, commit_time_us=self.time_us, last_commit_lsn=None, snapshot=marker)
        first, second, third = envelope.source(moment)
        lsn = b"%d" % self.lsn
        tail = b"".join((first, lsn, second, lsn, third, envelope.tail("r", now_ms)))
        page.reading.code.page(page.result.get_value, begin, end, keys, values, tail)


def _reading(each: SnapshotTable, shaper: Shaper, form: Format) -> _Reading:
    table = each.table
    columns = None if each.published is None else each.published.columns
    relation = relation_of(table, columns)
    shape = shaper.shape(relation, table)
    envelope = Envelope(shape, form)
    names = sql.SQL(", ").join(sql.Identifier(column.name) for column in relation.columns)
    query = sql.SQL("SELECT {} FROM {}{}").format(
        names,
        sql.SQL("" if table.partitioned else "ONLY "),
        sql.Identifier(table.schema, table.table),
    )
    if each.published is not None and each.published.row_filter:
        query += sql.SQL(" WHERE ") + sql.SQL(each.published.row_filter)  # from the catalog
    return _Reading(table=table, code=generate(envelope), envelope=envelope, query=query)
