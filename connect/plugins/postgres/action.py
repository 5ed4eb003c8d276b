"""The statement that is run with every heartbeat

`heartbeat.action.query` is the user's own, mostly an insert into a table of theirs. It is a favour done beside the
capture and must not be able to end or to stall it: whatever goes wrong is returned as a sentence for the status, and a
statement that waits for a lock is given up soon.
"""

from typing import Any, Final

import psycopg
import structlog

from tidemill.connect.api import PluginError
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import connect, one_line

log = structlog.get_logger("tidemill.connect.postgres")

STATEMENT_TIMEOUT_MS: Final = 5_000
"""No changes are read while the statement runs."""


class HeartbeatAction:
    """Runs the statement on a connection of its own, which stays open between heartbeats."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._connection: psycopg.Connection[Any] | None = None
        self._problem: str | None = None

    def run(self) -> str | None:
        """Run the statement; return what is wrong with it, None if nothing is."""
        try:
            self._execute()
            problem = None
        except (psycopg.Error, PluginError) as error:
            self.close()
            problem = f"heartbeat.action.query failed and is tried again with the next heartbeat: {one_line(error)}"
        if problem != self._problem:
            self._problem = problem
            if problem is None:
                log.info("heartbeat.action.query works again")
            else:
                log.warning("heartbeat.action.query failed", error=problem)
        return problem

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _execute(self) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._config)
            self._connection.execute(f"SET statement_timeout = {STATEMENT_TIMEOUT_MS}".encode())
        self._connection.execute(self._config.heartbeat_action_query.encode())
