"""Making replication slots, and the snapshots they export

`CREATE_REPLICATION_SLOT … EXPORT_SNAPSHOT` names a snapshot that shows exactly what was committed before the position
at which the slot's stream begins. The server waits for every transaction that is writing now to end before it answers,
so the question is asked without blocking: the caller hears that it takes long, and may give up.
"""

import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import structlog
from psycopg import pq, sql

from tidemill.connect.plugins.postgres.lsn import parse_lsn

log = structlog.get_logger("tidemill.connect.postgres")

WAITING_INTERVAL_S: Final = 0.5

CANCEL_TIMEOUT_S: Final = 10.0
"""For the server to hear that nobody waits any more, and to let go: what is not cancelled, it goes on to make."""

Waiting = Callable[[], None]
"""Called again and again while the server takes its time; ends the attempt by raising."""


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
    waiting: Waiting = lambda: None,
) -> ExportedSnapshot:
    """Make a slot on a replication connection and return the snapshot it exports."""
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
    result = patiently(connection, command, waiting)
    position, snapshot = result.get_value(0, 1), result.get_value(0, 2)
    return ExportedSnapshot(name=(snapshot or b"").decode(), lsn=parse_lsn((position or b"").decode()))


def drop_slot(connection: psycopg.Connection[Any], name: str) -> None:
    """Drop a slot that nobody uses."""
    connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))


def patiently(connection: psycopg.Connection[Any], command: sql.Composable, waiting: Waiting) -> pq.abc.PGresult:
    """Run a command that may take long, calling `waiting` all the while.

    What that raises cancels the command. The server has cleaned up after it when this raises the same, unless it is out
    of reach or busy with that for more than CANCEL_TIMEOUT_S.
    """
    pgconn = connection.pgconn
    pgconn.send_query(command.as_bytes(connection))
    pgconn.flush()
    try:
        while pgconn.is_busy():
            readable, _, _ = select.select([pgconn.socket], [], [], WAITING_INTERVAL_S)
            if readable:
                pgconn.consume_input()
            else:
                waiting()
    except BaseException:
        try:
            connection.cancel_safe(timeout=CANCEL_TIMEOUT_S)
            _await_end(pgconn)
        except psycopg.Error as error:  # what was raised is what is wrong
            log.warning("a command that was given up may go on in the database", reason=str(error))
        connection.close()
        raise
    result = pgconn.get_result()
    while pgconn.get_result() is not None:
        continue
    if result is None:
        raise psycopg.OperationalError("no answer")
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise psycopg.errors.error_from_result(result)
    return result


def _await_end(pgconn: pq.abc.PGconn) -> None:
    """Until the server takes the next command: a slot that it was making is in the way of a new one until then."""
    deadline = time.monotonic() + CANCEL_TIMEOUT_S
    while pgconn.is_busy() or pgconn.get_result() is not None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return
        if pgconn.is_busy() and select.select([pgconn.socket], [], [], left_s)[0]:
            pgconn.consume_input()
