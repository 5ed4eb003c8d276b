"""The catalog's answers while the stream runs

Every Relation message is a question: what does the catalog know about this table now? The message names columns and
types, but not NOT NULL, defaults, primary key or the labels of an enum; PostgreSQL sends it again, with the same
content, after changes of exactly those.

There may be thousands of tables, and all of them are announced after a reconnect. So one connection stays open for
all questions, and a question concerns one table: its row, its columns, and those of its types that are not built in.
"""

from typing import Any, Final

import psycopg

from tidemill.connect.plugins.postgres import catalog
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import connect
from tidemill.connect.plugins.postgres.pgoutput import Relation
from tidemill.connect.plugins.postgres.table import CatalogTable
from tidemill.connect.plugins.postgres.types.resolve import TypeCatalog

USER_OID_MIN: Final = 16384
"""Types below it come with the server: their numbers and names never change."""


class CatalogLookup:
    """Answers about one table at a time; `types` is kept up to date on the way."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._connection: psycopg.Connection[Any] | None = None

    def table(self, relation: Relation, types: TypeCatalog) -> CatalogTable | None:
        """Return what the catalog knows about a table, None if it is gone; raises plugin errors."""
        oids = sorted({each.type_oid for each in relation.columns if _may_be_new(each.type_oid, types)})
        kept = self._connection is not None
        try:
            return self._ask(relation.oid, oids, types)
        except psycopg.OperationalError as error:
            self.close()
            if not kept:
                raise
            if error.sqlstate is not None and not error.sqlstate.startswith(("08", "57P")):
                raise
        return self._ask(relation.oid, oids, types)  # a connection that was idle for long may have been cut

    def close(self) -> None:
        """Let go of the connection; the next question opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask(self, table: int, oids: list[int], types: TypeCatalog) -> CatalogTable | None:
        if self._connection is None:
            self._connection = connect(self._config)
        if oids:
            types.learn(catalog.read_these_types(self._connection, oids))
        return catalog.read_table(self._connection, table)


def _may_be_new(oid: int, types: TypeCatalog) -> bool:
    """A type made by somebody may have got a label or, its number reused, be another one."""
    return oid >= USER_OID_MIN or oid not in types
