"""A refused configuration says what to do"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from psycopg import sql

from tidemill.connect.api import InvalidConfig
from tidemill.connect.plugins.postgres.catalog import Server
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import connect
from tidemill.connect.plugins.postgres.preflight import check, check_server, may_do
from tidemill.testing.postgres_server import PostgresServer

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

SERVER = Server(
    version=150000,
    system_id="7",
    timeline=1,
    wal_level="logical",
    superuser=False,
    replication=True,
    wal_insert_lsn=1,
    in_recovery=False,
)


def config(database: Any, **settings: str) -> PostgresConfig:
    return PostgresConfig.model_validate(database.config(**settings))


def refused(database: Any, **settings: str) -> InvalidConfig:
    with pytest.raises(InvalidConfig) as caught:
        check(config(database, **settings))
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.fixture
def ready(database: Any) -> Any:
    """A database with two tables."""
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    return database


def test_a_good_configuration_passes_and_leaves_no_trace(ready: Any) -> None:
    check(config(ready))
    assert ready.rows("SELECT FROM pg_publication") == []
    assert ready.rows("SELECT FROM pg_replication_slots WHERE database = current_database()") == []


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"wal_level": "replica"}, "ALTER SYSTEM SET wal_level = 'logical'"),
        ({"replication": False}, "ALTER ROLE postgres REPLICATION"),
        ({"version": 110000}, "version 12 is the oldest"),
        ({"in_recovery": True}, "capture from the primary"),
    ],
)
def test_the_server_is_judged(ready: Any, changes: dict[str, Any], fix: str) -> None:
    with pytest.raises(InvalidConfig, match=fix):
        check_server(replace(SERVER, **changes), config(ready))
    check_server(SERVER, config(ready))


def test_an_unreachable_server(ready: Any) -> None:
    error = refused(ready, database_port="1")
    assert error.field_name == "database.hostname"
    assert "correct database.hostname and database.port" in str(error)


def test_a_table_that_is_not_there(ready: Any) -> None:
    error = refused(ready, table_include_list="public.nothing")
    assert (error.field_name, "public.nothing" in str(error)) == ("table.include.list", True)


def test_a_publication_that_may_not_be_made(ready: Any) -> None:
    assert refused(ready, publication_autocreate_mode="disabled").field_name == "publication.name"


def test_a_publication_that_lacks_a_table(ready: Any) -> None:
    ready.run("CREATE PUBLICATION dbz_publication FOR TABLE a")
    error = refused(ready)
    assert error.field_name == "publication.name"
    assert "public.b" in str(error)


def test_a_publication_that_would_break_applications(ready: Any) -> None:
    ready.run("CREATE TABLE keyless (n int)", "INSERT INTO keyless VALUES (1)")
    check(config(ready))  # it may only ever grow
    ready.change("keyless", "DELETE FROM keyless")
    error = refused(ready)
    assert error.field_name == "publication.name"
    assert "public.keyless" in str(error)
    check(config(ready, publication_autocreate_mode="filtered", table_include_list="public.a"))
    ready.run("CREATE PUBLICATION dbz_publication FOR ALL TABLES")
    check(config(ready))


def test_a_slot_of_another_database(ready: Any) -> None:
    ready.run(f"SELECT pg_create_logical_replication_slot('{ready.name}', 'test_decoding')")
    assert refused(ready).field_name == "slot.name"


def test_a_table_that_may_not_be_read(ready: Any) -> None:
    role = f"{ready.name}_weak"
    ready.run(f"CREATE ROLE \"{role}\" LOGIN REPLICATION PASSWORD 'x'")
    try:
        error = refused(ready, database_user=role, database_password="x")
        assert error.field_name == "database.user"
        assert f"GRANT SELECT ON public.a TO {role}" in str(error)
    finally:
        ready.run(f'DROP ROLE "{role}"')


def test_a_table_whose_rows_are_hidden_from_the_user(ready: Any) -> None:
    role = f"{ready.name}_weak"
    ready.run(
        f"CREATE ROLE \"{role}\" LOGIN REPLICATION PASSWORD 'x'",
        f'GRANT SELECT ON a, b TO "{role}"',
        "ALTER TABLE a ENABLE ROW LEVEL SECURITY",
    )
    try:
        error = refused(ready, database_user=role, database_password="x")
        assert error.field_name == "database.user"
        assert f"ALTER ROLE {role} BYPASSRLS" in str(error)
    finally:
        ready.run(f'REVOKE ALL ON a, b FROM "{role}"', f'DROP ROLE "{role}"')


@pytest.fixture
def weak(ready: Any) -> Iterator[str]:
    """A role that may capture, and has no right to publish."""
    role = f"{ready.name}_weak"
    ready.run(f"CREATE ROLE \"{role}\" LOGIN REPLICATION PASSWORD 'x'", f'GRANT SELECT ON a, b TO "{role}"')
    yield role
    ready.run(f'REASSIGN OWNED BY "{role}" TO CURRENT_USER', f'DROP OWNED BY "{role}"', f'DROP ROLE "{role}"')


@pytest.mark.parametrize(
    ("mode", "field", "words"),
    [
        ("all_tables", "publication.autocreate.mode", ["superuser", "publication.autocreate.mode=filtered"]),
        ("filtered", "database.user", ["GRANT CREATE ON DATABASE {database} TO {user}", "FOR TABLE …"]),
        ("no_tables", "database.user", ["GRANT CREATE ON DATABASE {database} TO {user}"]),
    ],
)
def test_the_right_to_make_the_publication(ready: Any, weak: str, mode: str, field: str, words: list[str]) -> None:
    settings = {"database_user": weak, "database_password": "x", "publication_autocreate_mode": mode}
    error = refused(ready, **settings)
    assert error.field_name == field
    for each in words:
        assert each.format(database=ready.name, user=weak) in str(error)
    ready.run("CREATE PUBLICATION dbz_publication FOR ALL TABLES")
    check(config(ready, **settings))


def test_what_is_tried_is_undone(ready: Any, weak: str) -> None:
    statement = sql.SQL("CREATE PUBLICATION tried FOR ALL TABLES")
    with connect(config(ready)) as connection:
        assert may_do(connection, statement) and may_do(connection, statement)
    with connect(config(ready, database_user=weak, database_password="x")) as connection:
        assert not may_do(connection, statement) and may_do(connection, sql.SQL("SELECT 1"))


def test_the_right_to_publish_each_table(ready: Any, weak: str) -> None:
    settings = {"database_user": weak, "database_password": "x", "publication_autocreate_mode": "filtered"}
    ready.run(f'GRANT CREATE ON DATABASE "{ready.name}" TO "{weak}"', f'ALTER TABLE a OWNER TO "{weak}"')
    error = refused(ready, **settings)
    assert error.field_name == "database.user"
    assert f"The user {weak} may not put public.b into the publication dbz_publication" in str(error)
    assert "public.a" not in str(error)
    check(config(ready, **settings, table_include_list="public.a"))
    ready.run(f'ALTER TABLE b OWNER TO "{weak}"')
    check(config(ready, **settings))


def test_the_right_to_add_to_a_publication(ready: Any, weak: str) -> None:
    settings = {"database_user": weak, "database_password": "x", "publication_autocreate_mode": "filtered"}
    ready.run("CREATE PUBLICATION dbz_publication FOR TABLE a", f'ALTER TABLE b OWNER TO "{weak}"')
    error = refused(ready, **settings)
    assert error.field_name == "publication.name"
    assert "does not contain public.b" in str(error) and "run ALTER PUBLICATION dbz_publication ADD TABLE" in str(error)
    ready.run(f'GRANT CREATE ON DATABASE "{ready.name}" TO "{weak}"')
    ready.run(f'ALTER PUBLICATION dbz_publication OWNER TO "{weak}"')
    check(config(ready, **settings))


def test_who_has_the_slot_is_no_reason_to_refuse(ready: Any, runtime: Callable[..., Any]) -> None:
    """It may be about to go, and it may be this connector."""
    runtime(ready.config()).until_streaming()
    check(config(ready))
    check(config(ready, topic_prefix="other"))


@pytest.fixture(scope="module")
def guarded() -> Iterator[PostgresServer]:
    """A server that asks for a password and whose log cannot be decoded."""
    with PostgresServer(password="right", settings={"wal_level": "replica"}) as server:
        yield server


def guarded_config(server: PostgresServer, **settings: str) -> PostgresConfig:
    values = {
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": "right",
        "database.dbname": server.dbname,
        "topic.prefix": "t",
    }
    return PostgresConfig.model_validate(values | {name.replace("_", "."): value for name, value in settings.items()})


@pytest.mark.parametrize(
    ("settings", "field", "words"),
    [
        ({"database_password": "wrong"}, "database.user", "database.password"),
        ({"database_password": ""}, "database.user", "database.password"),
        ({"database_user": "nobody_knows"}, "database.user", "refused the user nobody_knows"),
        ({"database_dbname": "nowhere"}, "database.dbname", "database.dbname"),
        ({}, "database.hostname", "wal_level is replica"),
    ],
)
def test_a_guarded_server(guarded: PostgresServer, settings: dict[str, str], field: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        check(guarded_config(guarded, **settings))
    assert caught.value.field_name == field
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
