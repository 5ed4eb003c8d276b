"""The initial load: every captured row as of one moment, in records

The rows are read through SQL cursors in a transaction that looks through a slot's exported snapshot (`viewpoint`), so
nothing is missing between snapshot and stream. A snapshot that was interrupted simply begins again, at a later moment;
`life` sees to it that what happened to rows read before still reaches the topics.

Pages are as large as `snapshot.fetch.size` allows, fewer rows where rows are wide, so that a page stays near
`PAGE_BYTES`. One page is read ahead, because the last row of a table, and of all tables, is marked as such.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import pq, sql

from tidemill.connect.api import EncodedBatch, NotConnected, Poison, SourcePartition
from tidemill.connect.plugins.postgres.catalog import PublishedTable
from tidemill.connect.plugins.postgres.codegen import NullInRequired, RowCode, generate
from tidemill.connect.plugins.postgres.envelope import Envelope, Format, Moment
from tidemill.connect.plugins.postgres.table import CatalogTable, Shaper, relation_of
from tidemill.connect.plugins.postgres.types.conversion import UNCONVERTIBLE
from tidemill.connect.plugins.postgres.viewpoint import Viewpoint, leave, lock_room

PAGE_BYTES: Final = 4 * 1024 * 1024
PAGE_ROWS_FIRST: Final = 200
"""Rows of a table's first page, before anything is known about their width."""
PAGE_ROWS_MAX: Final = 5_000
"""More rows at once only cost memory: fetching in pages of 100 to 5,000 rows is equally fast."""


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
    types: tuple[int, ...]  # of the columns, as the answer to the query names them

    def relax(self, column: int) -> None:
        """Let a column be null: it holds a value that is null in JSON."""
        self.envelope = Envelope(self.envelope.shape.with_optional(column), self.envelope.format)
        self.code = generate(self.envelope)


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
        viewpoint: Viewpoint,
        tables: Sequence[SnapshotTable],
        shaper: Shaper,
        form: Format,
        partition: SourcePartition,
        fetch_rows: int,
    ) -> None:
        self.viewpoint = viewpoint
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

    def read(self, now_ms: int) -> EncodedBatch | None:
        """Return the records of the next page, None when all tables are read."""
        with lock_room(self._connection, self.tables_total):  # to read takes those of the indexes
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
        leave(self._connection)

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
            if number == 0:
                _check_types(reading, result)
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
        reading = page.reading
        seen = self.viewpoint
        moment = Moment(xid=seen.xid, commit_time_us=seen.time_us, last_commit_lsn=None, snapshot=marker)
        first, second, third = reading.envelope.source(moment)
        lsn = b"%d" % seen.lsn
        before = len(values) - begin
        while True:
            tail = b"".join((first, lsn, second, lsn, third, reading.envelope.tail("r", now_ms)))
            try:
                reading.code.page(page.result.get_value, begin, end, keys, values, tail)
                return
            except NullInRequired as null:
                begin = len(values) - before
                reading.relax(null.column)
            except UNCONVERTIBLE:
                row = len(values) - before
                image = [page.result.get_value(row, column) for column in range(page.result.nfields)]
                misfit = reading.envelope.shape.misfit(image)
                raise Poison(f"A row cannot be read: {misfit}") from None  # what was raised quotes it


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
    return _Reading(
        table=table,
        code=generate(envelope),
        envelope=envelope,
        query=query,
        types=tuple(shaper.types.base(column.type_oid) for column in relation.columns),
    )


def _check_types(reading: _Reading, result: pq.abc.PGresult) -> None:
    """The code was made for these types; the lock on the table keeps them, so this is the second look."""
    types = tuple(result.ftype(column) for column in range(result.nfields))
    if types != reading.types:
        table = reading.table
        raise NotConnected(f"the columns of {table.schema}.{table.table} changed while its snapshot began: {types}")
