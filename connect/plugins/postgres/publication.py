"""The publication that says what the server sends

`publication.autocreate.mode` decides what happens when it is missing, and whether its list of tables follows the
connector's. It must exist before the slot does: the server looks a publication up as it was at the position it
decodes, and a change decoded without one ends the stream for good.
"""

from collections.abc import Sequence
from typing import Any

import psycopg
import structlog
from psycopg import sql

from tidemill.connect.api import Fatal
from tidemill.connect.plugins.postgres.catalog import Publication, read_publication
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import translated
from tidemill.connect.plugins.postgres.table import CatalogTable

log = structlog.get_logger("tidemill.connect.postgres")

TABLES_NAMED_MAX = 5
"""Tables a message lists before it says "and n more"."""


def ensure_publication(
    connection: psycopg.Connection[Any], config: PostgresConfig, tables: Sequence[CatalogTable]
) -> Publication:
    """Make or adjust the publication as the settings say; raises Fatal where that is not allowed or not possible."""
    found = read_publication(connection, config.publication_name)
    command: sql.Composable | None = None
    if found is None:
        refuse_missing(config)
        command = creation(config, tables)
    elif config.publication_autocreate == "filtered" and not found.all_tables and missing(found, tables):
        command = sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(
            sql.Identifier(config.publication_name), _list(tables)
        )
    if command is not None:
        with translated(config):
            _execute(connection, config, command)
        found = read_publication(connection, config.publication_name)
        log.info("publication made or changed", publication=config.publication_name)
    assert found is not None, "it was there or was made"
    absent = missing(found, tables)
    if absent and config.publication_autocreate != "no_tables":
        raise Fatal(missing_text(config, absent))
    return found


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
    named = ", ".join(absent[:TABLES_NAMED_MAX])
    more = f" and {len(absent) - TABLES_NAMED_MAX} more" if len(absent) > TABLES_NAMED_MAX else ""
    return (
        f"The publication {config.publication_name} does not contain {named}{more}; add them with ALTER PUBLICATION "
        f"{config.publication_name} ADD TABLE …, leave them out with table.exclude.list, or set "
        "publication.autocreate.mode=filtered."
    )


def _execute(connection: psycopg.Connection[Any], config: PostgresConfig, command: sql.Composable) -> None:
    try:
        connection.execute(command)  # type: ignore[call-overload]  # every part of it is quoted
    except psycopg.errors.InsufficientPrivilege as error:
        raise Fatal(
            f"The user {config.user} may not make or change the publication {config.publication_name}: "
            f"{' '.join(str(error).split())}; let an administrator do it, or set publication.autocreate.mode=filtered "
            "with a role that owns the tables."
        ) from error
    except psycopg.errors.DuplicateObject:
        log.info("the publication was made by somebody else meanwhile", publication=config.publication_name)


def _list(tables: Sequence[CatalogTable]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL("ONLY {}").format(sql.Identifier(each.schema, each.table)) for each in tables)
