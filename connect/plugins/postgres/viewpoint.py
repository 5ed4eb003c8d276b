"""The viewpoint of a snapshot: what it shows, and whether that still holds

A transaction that looks through an exported snapshot sees rows and catalogs as of that moment, but the server reads a
table with what it knows of it now. A table rewritten in between (ALTER … TYPE) reads as empty, a dropped column cannot
be asked for, a changed type gives values of another form. So three steps, in this order: the catalog as the snapshot
shows it, a lock on every table that will be read, the catalog as it is now. If both are the same, the lock keeps it so
until the last row is read. If not, this viewpoint is no good, and a later one has to be found. A table made since then
is no difference if the publication has it: all of its rows come in the stream.

The lock is the weakest there is, the one every SELECT takes: writers go on, only a change of the table waits. To look
at the catalog now takes such locks, too, for a moment and from another connection, which has to queue behind whoever
waits for ours: nobody would ever go on. So that look is given up soon, and then a later viewpoint is found as well.

The server has room for so many locks, for everybody together. When it is full the snapshot fails: to try again and
again would take the room from the applications each time.

Row-level security is switched off, which makes it an error where it would leave rows out in silence.
"""

from collections.abc import Iterator, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from tidemill.connect.api import Fatal
from tidemill.connect.plugins.postgres import catalog
from tidemill.connect.plugins.postgres.catalog import Publication
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import connect, one_line
from tidemill.connect.plugins.postgres.slot import ExportedSnapshot, Waiting, patiently
from tidemill.connect.plugins.postgres.table import CatalogTable

SETTINGS: Final = {
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",
    "row_security": "off",
}
"""While a broker is slow nobody reads for as long as it takes; a limit would begin the snapshot again for ever."""

LOCKS_SETTING: Final = "max_locks_per_transaction"

LOOK_LOCK_TIMEOUT_MS: Final = 2_000
"""For a look at the catalog while we hold locks: the server sees no deadlock between two connections of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewpoint:
    """A snapshot that a transaction looks through; number and time are for the records of its rows."""

    lsn: int
    xid: int
    time_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The captured tables as one look at the catalog showed them, and where their rows are (`read_storage`)."""

    tables: tuple[CatalogTable, ...]
    storage: tuple[tuple[int, int, int], ...]


def enter(connection: psycopg.Connection[Any], exported: ExportedSnapshot) -> Viewpoint:
    """Begin a transaction that looks through the snapshot; no time limit ends it while nobody reads."""
    connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(exported.name)))
    for name, value in SETTINGS.items():
        if name != "transaction_timeout" or connection.info.server_version >= 170000:
            connection.execute(sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    row = connection.execute(
        "SELECT (txid_snapshot_xmax(txid_current_snapshot()) - 1) & 4294967295, "
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    ).fetchone()
    assert row is not None, "a query without a table has a row"
    return Viewpoint(lsn=exported.lsn, xid=int(row[0]), time_us=int(row[1]))


def leave(connection: psycopg.Connection[Any]) -> None:
    """End the transaction, and with it the locks."""
    connection.execute("ROLLBACK")


def view(connection: psycopg.Connection[Any], config: PostgresConfig) -> View:
    """Look at the catalog, in whatever transaction the connection is."""
    tables = catalog.read_tables(connection, config.selection, via_root=config.publish_via_partition_root)
    return View(tables=tuple(tables), storage=tuple(catalog.read_storage(connection, tables)))


def settle(
    connection: psycopg.Connection[Any], config: PostgresConfig, publication: Publication, waiting: Waiting
) -> tuple[View, str | None]:
    """Lock the tables to read; return what the snapshot shows of them, and what looks different by now, if anything.

    `publication` is what it was before the snapshot was made.
    """
    captured = view(connection, config)
    then = to_read(captured, config)
    unread = {each.oid for each in captured.tables} - {each.oid for each in then.tables}
    try:
        with lock_room(connection, len(then.tables)):
            lock(connection, then.tables, waiting)
            with closing(connect(config)) as other:
                other.execute(f"SET lock_timeout = {LOOK_LOCK_TIMEOUT_MS}".encode())
                now = without(view(other, config), unread)
                published = catalog.read_publication(other, config.publication_name)
    except (errors.UndefinedTable, errors.InvalidSchemaName, errors.WrongObjectType) as error:
        return then, one_line(error)
    except errors.LockNotAvailable:
        return then, "a table that another process waits to change"
    return then, difference(then, now, publication, published)


def to_read(seen: View, config: PostgresConfig) -> View:
    """Leave out the captured tables whose rows were not asked for."""
    accepts = config.snapshot_selection.accepts
    return without(seen, {each.oid for each in seen.tables if not accepts(f"{each.schema}.{each.table}")})


def without(seen: View, oids: Set[int]) -> View:
    """Leave out some tables."""
    return View(
        tables=tuple(each for each in seen.tables if each.oid not in oids),
        storage=tuple(each for each in seen.storage if each[0] not in oids),
    )


def lock(connection: psycopg.Connection[Any], tables: Sequence[CatalogTable], waiting: Waiting) -> None:
    """Keep tables from being changed, though not from being written, until the transaction ends."""
    if not tables:
        return
    names = sql.SQL(", ").join(
        sql.SQL("{}{}").format(sql.SQL("" if each.partitioned else "ONLY "), sql.Identifier(each.schema, each.table))
        for each in tables
    )
    patiently(connection, sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(names), waiting)


@contextmanager
def lock_room(connection: psycopg.Connection[Any], tables: int) -> Iterator[None]:
    """Turn the server's want of room for the locks on so many tables into what to do about it."""
    try:
        yield
    except errors.OutOfMemory as error:
        if LOCKS_SETTING not in (error.diag.message_hint or ""):
            raise
        leave(connection)  # gives the room back
        row = connection.execute(
            "SELECT current_setting(%s), current_setting('max_connections')", (LOCKS_SETTING,)
        ).fetchone()
        assert row is not None, "a query without a table has a row"
        raise Fatal(
            f"PostgreSQL has no room for the locks of a snapshot of {tables} tables ({one_line(error)}): each table, "
            f"partition and index is locked until the last row is read, and all sessions together have about "
            f"{LOCKS_SETTING} ({row[0]}) times max_connections ({row[1]}) locks; raise {LOCKS_SETTING} and restart the "
            "server, or read fewer tables with snapshot.include.collection.list"
        ) from error


def difference(then: View, now: View, publication: Publication, published: Publication | None) -> str | None:
    """Name the first thing that looks different now, None if all looks the same; `publication` is as it was then."""
    sent = {} if published is None else published.by_name
    after = {each.oid: each for each in now.tables}
    for each in then.tables:
        name = (each.schema, each.table)
        if after.pop(each.oid, None) != each or sent.get(name) != publication.by_name.get(name):
            return f"table {each.schema}.{each.table}"
    for each in after.values():
        if (each.schema, each.table) not in sent:
            return f"table {each.schema}.{each.table}"
    own = {each.oid for each in then.tables}
    moved = set(then.storage) ^ {each for each in now.storage if each[0] in own}
    return f"the rows of table {min(moved)[0]}" if moved else None
