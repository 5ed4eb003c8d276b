"""What is asked of the database before a connector is accepted

Each condition has one sentence that says what to do, and the setting it belongs to. The same conditions are met again
when the task starts; here they turn a failed task an hour later into a refused configuration now.

The task makes or changes the publication with the connector's own user, so what that needs is asked here; who may make
one of all tables is tried, as providers of servers give that right to others than superusers. Who has the slot is not
asked: whoever it is may be about to go, as a connector that was just stopped, and the task waits and says for whom.

What only warns: a published table without primary key in which the server has seen no update and no delete, or that
somebody else has published already. PostgreSQL refuses its UPDATE and DELETE, but such tables may well be filled by
INSERT alone.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from tidemill.connect.api import Fatal, InvalidConfig, NotConnected
from tidemill.connect.plugins.postgres.catalog import (
    Publication,
    Server,
    read_publication,
    read_publishing_rights,
    read_server,
    read_slot,
    read_tables,
)
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import connect, one_line
from tidemill.connect.plugins.postgres.publication import change, missing, missing_text, some
from tidemill.connect.plugins.postgres.table import CatalogTable

VERSION_MIN = 120000
"""Older servers are out of support, and their catalogs lack what is asked here."""


def check(config: PostgresConfig) -> None:
    """Raise InvalidConfig for what would keep the connector from working."""
    try:
        with connect(config) as connection:
            check_server(read_server(connection), config)
            check_slot(connection, config)
            tables = read_tables(connection, config.selection, via_root=config.publish_via_partition_root)
            check_tables(connection, config, tables)
    except NotConnected as error:
        raise InvalidConfig(
            "database.hostname",
            f"The database does not answer: {error};",
            "start it, or correct database.hostname and database.port.",
        ) from error
    except Fatal as error:
        raise InvalidConfig(_setting_of(error, config.dbname), str(error)) from error
    except psycopg.Error as error:
        raise InvalidConfig("database.hostname", f"The database refused a question: {one_line(error)}.") from error


def check_server(server: Server, config: PostgresConfig) -> None:
    """Judge the server and our role on it."""
    if server.version < VERSION_MIN:
        raise InvalidConfig(
            "database.hostname", f"The server is PostgreSQL {server.version // 10000};", "version 12 is the oldest."
        )
    if server.in_recovery and server.version < 160000:
        raise InvalidConfig(
            "database.hostname",
            "The server is a standby, and PostgreSQL decodes there only since version 16;",
            "capture from the primary.",
        )
    if server.wal_level != "logical":
        raise InvalidConfig(
            "database.hostname",
            f"The server's wal_level is {server.wal_level};",
            "run ALTER SYSTEM SET wal_level = 'logical' and restart the server.",
        )
    if not server.replication:
        raise InvalidConfig(
            "database.user",
            f"The user {config.user} may not replicate;",
            f"run ALTER ROLE {config.user} REPLICATION as an administrator.",
        )


def check_slot(connection: psycopg.Connection[Any], config: PostgresConfig) -> None:
    """Judge a slot that exists already."""
    slot = read_slot(connection, config.slot_name)
    if slot is not None and (slot.plugin != "pgoutput" or slot.database != config.dbname):
        raise InvalidConfig(
            "slot.name",
            f"The replication slot {config.slot_name} is of plugin {slot.plugin} in database {slot.database};",
            "drop it or choose another name.",
        )


def check_tables(connection: psycopg.Connection[Any], config: PostgresConfig, tables: Sequence[CatalogTable]) -> None:
    """Judge the captured tables and the publication."""
    if not tables and config.table_include:
        raise InvalidConfig(
            "table.include.list",
            f"No table of database {config.dbname} matches {config.table_include!r};",
            "patterns are matched against schema.table.",
        )
    for table in tables:
        if not _may_select(connection, table):
            raise InvalidConfig(
                "database.user",
                f"The user {config.user} may not read {table.schema}.{table.table};",
                f"run GRANT SELECT ON {table.schema}.{table.table} TO {config.user}.",
            )
        if _is_filtered(connection, table):
            raise InvalidConfig(
                "database.user",
                f"Row-level security hides rows of {table.schema}.{table.table} from the user {config.user};",
                f"run ALTER ROLE {config.user} BYPASSRLS as an administrator.",
            )
    publication = read_publication(connection, config.publication_name)
    planned = change(connection, config, publication, tables)
    if planned is not None:
        check_rights(connection, config, publication, tables, planned)
    absent = [] if publication is None or planned is not None else missing(publication, tables)
    if absent and config.publication_autocreate != "no_tables":
        raise InvalidConfig("publication.name", missing_text(config, absent))


def check_rights(
    connection: psycopg.Connection[Any],
    config: PostgresConfig,
    publication: Publication | None,
    tables: Sequence[CatalogTable],
    planned: sql.Composable,
) -> None:
    """Judge whether the user may make the publication, or add the tables that are not in it, as `planned`."""
    name, user, mode = config.publication_name, config.user, config.publication_autocreate
    sent = {} if publication is None else publication.by_name
    rights = read_publishing_rights(
        connection, name, [each for each in tables if (each.schema, each.table) not in sent]
    )
    if publication is not None and not rights.owns_publication:
        raise InvalidConfig(
            "publication.name",
            f"The publication {name} does not contain {some(missing(publication, tables))}, and the user {user} may "
            "not add to it;",
            f"run ALTER PUBLICATION {name} ADD TABLE … as its owner, or choose another name.",
        )
    if publication is None and mode == "all_tables" and not (rights.superuser or may_do(connection, planned)):
        raise InvalidConfig(
            "publication.autocreate.mode",
            f"The user {user} may not make the publication {name} for all tables, as only a superuser may;",
            f"set publication.autocreate.mode=filtered, or let one run CREATE PUBLICATION {name} FOR ALL TABLES.",
        )
    statement = "ALTER PUBLICATION {} ADD TABLE …" if publication else "CREATE PUBLICATION {} FOR TABLE …"
    if publication is None and not rights.create:
        raise InvalidConfig(
            "database.user",
            f"The user {user} may not make the publication {name} in database {config.dbname};",
            f"run GRANT CREATE ON DATABASE {config.dbname} TO {user} as an administrator, or make the publication "
            f"yourself: {statement.format(name) if mode == 'filtered' else f'CREATE PUBLICATION {name}'}.",
        )
    if mode == "filtered" and rights.others_tables:
        raise InvalidConfig(
            "database.user",
            f"The user {user} may not put {some(rights.others_tables)} into the publication {name}, as only the owner "
            "of a table may;",
            f"run {statement.format(name)} as an administrator, or GRANT the role that owns them TO {user}.",
        )


def may_do(connection: psycopg.Connection[Any], statement: sql.Composable) -> bool:
    """Whether the server lets our role do that; it is undone. For what locks nothing."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement)  # type: ignore[call-overload]  # every part of it is quoted
    except psycopg.errors.InsufficientPrivilege:
        return False
    except psycopg.errors.ReadOnlySqlTransaction:  # a standby: what it lacks has to be made elsewhere
        return False
    return True


def _may_select(connection: psycopg.Connection[Any], table: CatalogTable) -> bool:
    row = connection.execute("SELECT has_table_privilege(%s::bigint::oid, 'SELECT')", (table.oid,)).fetchone()
    return bool(row is not None and row[0])


def _is_filtered(connection: psycopg.Connection[Any], table: CatalogTable) -> bool:
    row = connection.execute("SELECT row_security_active(%s::bigint::oid)", (table.oid,)).fetchone()
    return bool(row is not None and row[0])


def _setting_of(error: Fatal, dbname: str) -> str:
    text = str(error).lower()
    if f'database "{dbname.lower()}" does not exist' in text:
        return "database.dbname"
    return "publication.name" if "publication" in text else "database.user"
