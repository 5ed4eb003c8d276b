"""The watch over locks: whom the snapshot waits for, and who waits for it

While a connection waits for a lock it cannot say so, and while rows are read nobody asks whom their locks hold up. So a
second connection, in a thread of its own, looks at the server's locks every second and tells the status what it found
twice in a row: what lasts less is no trouble. The connection is opened with the first look, which a life that only
goes on with its stream does not live to see.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import structlog

from tidemill.connect.api import PluginError
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import connect, one_line

log = structlog.get_logger("tidemill.connect.postgres")

LOOK_INTERVAL_S: Final = 1.0

JOIN_TIMEOUT_S: Final = 5.0
"""A look takes milliseconds; one at a server that has gone away is not waited for."""

NAMED_MAX: Final = 5
"""Processes named in a sentence."""

_LOOK: Final = b"""
SELECT l.pid, n.nspname || '.' || c.relname,
       CASE WHEN l.pid = %(pid)s THEN pg_blocking_pids(l.pid) ELSE '{}' END
FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE CASE WHEN l.granted THEN false ELSE l.pid = %(pid)s OR %(pid)s = ANY(pg_blocking_pids(l.pid)) END
ORDER BY l.pid
"""
"""Everybody may see the locks of everybody. Who waits has one row that is not granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A process that waits for others; `table` is None where it waits for the end of a transaction."""

    pid: int
    table: str | None
    blockers: tuple[int, ...] = ()


class LockWatch:
    """Watches the connection of process `pid`; `tell` gets a sentence for the status, None when all is well."""

    def __init__(self, config: PostgresConfig, pid: int, tell: Callable[[str | None], None]) -> None:
        self._config = config
        self._pid = pid
        self._tell = tell
        self._told: str | None = None
        self._before: frozenset[tuple[int, str | None]] = frozenset()
        self._closed = threading.Event()
        self._telling = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"locks {config.slot_name}", daemon=True)
        self._thread.start()

    @property
    def told(self) -> str | None:
        """What the status says now."""
        return self._told

    def close(self) -> None:
        """Take back what was told and end; more than once does no harm."""
        with self._telling:
            self._closed.set()
            self._say(None)
        self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        while not self._closed.wait(LOOK_INTERVAL_S):
            try:
                if connection is None:
                    connection = connect(self._config)
                self._found(look(connection, self._pid))
            except (psycopg.Error, PluginError) as error:
                log.debug("the locks cannot be watched", error=one_line(error))
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _found(self, held: frozenset[Held]) -> None:
        lasting = frozenset(each for each in held if (each.pid, each.table) in self._before)
        self._before = frozenset((each.pid, each.table) for each in held)
        with self._telling:
            if not self._closed.is_set():
                self._say(sentence(lasting, self._pid))

    def _say(self, text: str | None) -> None:
        if text != self._told:
            self._told = text
            self._tell(text)


def look(connection: psycopg.Connection[Any], pid: int) -> frozenset[Held]:
    """Return who waits: process `pid` for others, and others for it."""
    rows = connection.execute(_LOOK, {"pid": pid}).fetchall()
    return frozenset(Held(pid=waiting, table=table, blockers=tuple(pids)) for waiting, table, pids in rows)


def sentence(held: frozenset[Held], pid: int) -> str | None:
    """Return what to tell, None if nobody waits."""
    parts = [_waits_for(each) for each in held if each.pid == pid]
    waiting = sorted((each for each in held if each.pid != pid), key=lambda each: each.pid)
    if waiting:
        named = ", ".join(f"{each.pid} ({each.table or 'the end of its transaction'})" for each in waiting[:NAMED_MAX])
        more = f" and {len(waiting) - NAMED_MAX} more" if len(waiting) > NAMED_MAX else ""
        parts.append(
            f"the snapshot keeps processes {named}{more} waiting, which want to change what it reads; whoever comes "
            "after them waits, too, until the last row is read, they are cancelled (pg_cancel_backend), or the "
            "connector is stopped"
        )
    return "; ".join(parts) or None


def _waits_for(held: Held) -> str:
    pids = [str(pid) for pid in held.blockers[:NAMED_MAX] if pid]
    prepared = ["a prepared transaction (see pg_prepared_xacts)"] if 0 in held.blockers else []  # has no process
    who = ", ".join(([f"those of processes {', '.join(pids)}"] if pids else []) + prepared) or "those of others"
    return f"{held.table or 'the catalog'} can be read once the transactions that change it have ended: {who}"
