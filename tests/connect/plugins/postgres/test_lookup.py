"""Questions about tables while the stream runs: how many, on how many connections"""

from collections.abc import Iterator

import psycopg
import pytest

from tidemill.connect.plugins.postgres import catalog
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.lookup import CatalogLookup
from tidemill.connect.plugins.postgres.selection import Selection
from tidemill.connect.plugins.postgres.table import relation_of
from tidemill.connect.plugins.postgres.types.conversion import Modes
from tidemill.testing.postgres_server import PostgresServer

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


@pytest.fixture(scope="module")
def talkative() -> Iterator[PostgresServer]:
    """A server that writes every connection and statement into its log."""
    with PostgresServer(settings={"log_connections": "on", "log_statement": "all"}) as server:
        yield server


def config(server: PostgresServer) -> PostgresConfig:
    return PostgresConfig.model_validate(
        {
            "database.hostname": server.host,
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password or "",
            "database.dbname": server.dbname,
            "topic.prefix": "t",
        }
    )


def logged(server: PostgresServer, words: str) -> int:
    return server.log_path.read_text(errors="replace").count(words)


def test_thousands_of_tables_are_asked_about_on_one_connection_one_by_one(talkative: PostgresServer) -> None:
    count = 50
    with psycopg.connect(talkative.dsn, autocommit=True) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('sad')")
        for number in range(count):
            connection.execute(f"CREATE TABLE plain_{number} (id int PRIMARY KEY, n numeric, l text[])".encode())
        connection.execute("CREATE TABLE special (id int PRIMARY KEY, m mood[])")
        types = catalog.read_types(connection)
        tables = {each.table: each for each in catalog.read_tables(connection, Selection(), via_root=False)}
    connections, statements = (logged(talkative, words) for words in ("connection authorized", "LOG:  execute"))
    lookup = CatalogLookup(config(talkative))
    for name, table in tables.items():
        if name.startswith("plain"):
            assert lookup.table(relation_of(table), types) == table
    assert logged(talkative, "connection authorized") == connections + 1
    assert logged(talkative, "LOG:  execute") == statements + 2 * count, "its row and its columns, nothing of types"
    with psycopg.connect(talkative.dsn, autocommit=True) as connection:
        connection.execute("ALTER TYPE mood ADD VALUE 'ok'")
    lookup.table(relation_of(tables["special"]), types)
    mood = types.conversion(tables["special"].columns[1].type_oid, -1, Modes()).schema.items
    assert mood is not None and mood.parameters == {"allowed": "sad,ok"}
    lookup.close()


def test_a_connection_that_was_cut_is_opened_again(talkative: PostgresServer) -> None:
    with psycopg.connect(talkative.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE cut (id int PRIMARY KEY)")
        types = catalog.read_types(connection)
        [table] = [each for each in catalog.read_tables(connection, Selection(), via_root=False) if each.table == "cut"]
        lookup = CatalogLookup(config(talkative))
        assert lookup.table(relation_of(table), types) == table
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidemill t'"
        )
        assert lookup.table(relation_of(table), types) == table
        connection.execute("DROP TABLE cut")
        assert lookup.table(relation_of(table), types) is None
        lookup.close()
