"""The publication that says what the server sends

`publication.autocreate.mode` decides what happens when it is missing, and whether captured tables are added to one
that is there. It must exist before the slot does: the server looks a publication up as it was at the position it
decodes, and a change decoded without one ends the stream for good.

Publishing a table is not free for its users: PostgreSQL refuses UPDATE and DELETE of a published table without replica
identity. What we would publish is therefore looked at first: where the server has counted updates or deletes of such
a table, an application would break, and nothing is published. Where it has counted none, as of logs that only grow, the
table is published, and status and log say what it will not accept. What somebody else published is their decision.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
import structlog
from psycopg import sql

from tidemill.connect.api import Fatal
from tidemill.connect.plugins.postgres.catalog import KeylessTable, Publication, read_keyless, read_publication
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import translated
from tidemill.connect.plugins.postgres.table import CatalogTable

log = structlog.get_logger("tidemill.connect.postgres")

TABLES_NAMED_MAX = 5
"""Tables a message lists before it says "and n more"."""

ATTEMPTS_MAX = 3
"""Looks at a publication that others change at the same time."""


def ensure_publication(
    connection: psycopg.Connection[Any], config: PostgresConfig, tables: Sequence[CatalogTable]
) -> Publication:
    """Make or adjust the publication as the settings say; raises Fatal where that is not allowed or not possible."""
    for _ in range(ATTEMPTS_MAX):
        found = read_publication(connection, config.publication_name)
        command = change(connection, config, found, tables)
        if command is None:
            break
        with translated(config):
            _execute(connection, config, command, made=found is None)
    else:
        found = read_publication(connection, config.publication_name)
    if found is None:
        raise Fatal(f"The publication {config.publication_name} is dropped as soon as it is made; find out by whom.")
    absent = missing(found, tables)
    if absent and config.publication_autocreate != "no_tables":
        raise Fatal(missing_text(config, absent))
    return found


def change(
    connection: psycopg.Connection[Any],
    config: PostgresConfig,
    found: Publication | None,
    tables: Sequence[CatalogTable],
) -> sql.Composable | None:
    """Return the statement that makes the publication or adds tables to it, None if it is as the settings want it.

    Raises Fatal where that is not allowed, and where it would make the UPDATE and DELETE of an application fail.
    Tables are only ever added: other tables in it, their column lists and row filters are somebody else's.
    """
    if found is None:
        refuse_missing(config)
        if config.publication_autocreate in ("all_tables", "filtered"):
            refuse_keyless(config, read_keyless(connection, _reached(config, tables)))
        return creation(config, tables)
    sent = {(each.schema, each.table) for each in found.tables}
    absent = [each for each in tables if (each.schema, each.table) not in sent]
    if not absent or found.all_tables or config.publication_autocreate != "filtered":
        return None
    refuse_keyless(config, read_keyless(connection, absent))
    return sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(config.publication_name), _list(absent))


def keyless(
    connection: psycopg.Connection[Any], publication: Publication, tables: Sequence[CatalogTable]
) -> str | None:
    """Name the published tables whose UPDATE and DELETE fail, None if there is none."""
    sent = publication.by_name
    ours = [each for each in tables if (each.schema, each.table) in sent]
    found = read_keyless(connection, None if publication.all_tables else ours)
    return some([str(each) for each in found]) if found else None


def refuse_keyless(config: PostgresConfig, tables: Sequence[KeylessTable]) -> None:
    """Raise Fatal if publishing would break the applications that use these tables."""
    names = [str(each) for each in tables if each.changes and not each.published]
    if names:
        everything = config.publication_autocreate == "all_tables"
        others = (
            "publish only the captured tables with publication.autocreate.mode=filtered"
            if everything
            else "leave them out with table.exclude.list"
        )
        raise Fatal(
            f"The publication {config.publication_name} would make every UPDATE and DELETE of {some(names)} fail in "
            "the applications, which do change rows there (pg_stat_user_tables), for there is no primary key (a "
            "deferrable one does not count) and no replica identity; give each table a primary key, or run ALTER "
            f"TABLE … REPLICA IDENTITY FULL, {others}, or, if it may be so, make the publication yourself: CREATE "
            f"PUBLICATION {config.publication_name} {'FOR ALL TABLES' if everything else 'FOR TABLE …'}."
        )


def _reached(config: PostgresConfig, tables: Sequence[CatalogTable]) -> Sequence[CatalogTable] | None:
    return None if config.publication_autocreate == "all_tables" else tables


def refuse_missing(config: PostgresConfig) -> None:
    """Raise Fatal where a missing publication may not be made."""
    if config.publication_autocreate == "disabled":
        raise Fatal(
            f"The publication {config.publication_name} does not exist and publication.autocreate.mode is disabled; "
            f"run CREATE PUBLICATION {config.publication_name} FOR TABLE … in database {config.dbname}."
        )


def creation(config: PostgresConfig, tables: Sequence[CatalogTable]) -> sql.Composable:
    """Return the statement that makes the publication."""
    scope: sql.Composable = sql.SQL("")
    if config.publication_autocreate == "all_tables":
        scope = sql.SQL(" FOR ALL TABLES")
    elif config.publication_autocreate == "filtered":
        if not tables:
            raise Fatal("No table matches the include and exclude lists, so there is nothing to publish.")
        scope = sql.SQL(" FOR TABLE {}").format(_list(tables))
    root = sql.SQL(" WITH (publish_via_partition_root = true)" if config.publish_via_partition_root else "")
    return sql.SQL("CREATE PUBLICATION {}{}{}").format(sql.Identifier(config.publication_name), scope, root)


def missing(publication: Publication, tables: Sequence[CatalogTable]) -> list[str]:
    """Return the captured tables the publication does not send."""
    sent = {(each.schema, each.table) for each in publication.tables}
    return [f"{each.schema}.{each.table}" for each in tables if (each.schema, each.table) not in sent]


def missing_text(config: PostgresConfig, absent: Sequence[str]) -> str:
    """Return a sentence about tables outside the publication."""
    return (
        f"The publication {config.publication_name} does not contain {some(absent)}; add them with ALTER PUBLICATION "
        f"{config.publication_name} ADD TABLE …, leave them out with table.exclude.list, or set "
        "publication.autocreate.mode=filtered."
    )


def some(names: Sequence[str]) -> str:
    """Name them, or the first few of many."""
    more = f" and {len(names) - TABLES_NAMED_MAX} more" if len(names) > TABLES_NAMED_MAX else ""
    return ", ".join(names[:TABLES_NAMED_MAX]) + more


def _execute(
    connection: psycopg.Connection[Any], config: PostgresConfig, command: sql.Composable, *, made: bool
) -> None:
    try:
        connection.execute(command)  # type: ignore[call-overload]  # every part of it is quoted
    except psycopg.errors.InsufficientPrivilege as error:
        raise Fatal(
            f"The user {config.user} may not make or change the publication {config.publication_name}: "
            f"{' '.join(str(error).split())}; {_without_right(config, made=made)}."
        ) from error
    except (psycopg.errors.DuplicateObject, psycopg.errors.UndefinedObject):
        log.info("the publication was changed by somebody else meanwhile", publication=config.publication_name)
        return
    log.info("publication made or changed", publication=config.publication_name)


def _without_right(config: PostgresConfig, *, made: bool) -> str:
    """Return what to do where the user may not make the publication or, if it is there, not add tables to it."""
    name, user = config.publication_name, config.user
    if not made:
        return (
            f"let an administrator run ALTER PUBLICATION {name} ADD TABLE …, or make {user} a member of the roles that "
            "own the publication and the tables"
        )
    grant = f"run GRANT CREATE ON DATABASE {config.dbname} TO {user}"
    if config.publication_autocreate == "filtered":
        return (
            f"let an administrator run CREATE PUBLICATION {name} FOR TABLE …, or {grant} and make {user} a member of "
            "the roles that own the tables"
        )
    if config.publication_autocreate == "all_tables":
        return (
            f"let a superuser run CREATE PUBLICATION {name} FOR ALL TABLES, or set publication.autocreate.mode="
            f"filtered with a user that owns the captured tables and may create in database {config.dbname}"
        )
    return f"let an administrator run CREATE PUBLICATION {name}, or {grant}"


def _list(tables: Sequence[CatalogTable]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL("ONLY {}").format(sql.Identifier(each.schema, each.table)) for each in tables)
