"""Publications: made, adjusted, missed"""

from typing import Any

import psycopg
import pytest

from tidemill.connect.api import Fatal
from tidemill.connect.plugins.postgres import catalog
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.publication import ensure_publication, keyless, missing_text
from tidemill.connect.plugins.postgres.selection import Selection
from tidemill.connect.plugins.postgres.table import CatalogTable

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


def config(database: Any, mode: str, **more: str) -> PostgresConfig:
    return PostgresConfig.model_validate(database.config(publication_autocreate_mode=mode, **more))


def tables(database: Any) -> list[CatalogTable]:
    return catalog.read_tables(database.connection, Selection(), via_root=False)


@pytest.fixture
def two(database: Any) -> Any:
    """A database with two tables."""
    database.run("CREATE TABLE a (id int PRIMARY KEY)", 'CREATE TABLE "B b" (id int PRIMARY KEY)')
    return database


def test_for_all_tables(two: Any) -> None:
    assert ensure_publication(two.connection, config(two, "all_tables"), tables(two)).all_tables


def test_for_the_captured_tables_and_followed_when_they_change(two: Any) -> None:
    made = ensure_publication(two.connection, config(two, "filtered"), tables(two)[:1])
    assert [each.table for each in made.tables] == ["B b"]
    made = ensure_publication(two.connection, config(two, "filtered"), tables(two))
    assert [each.table for each in made.tables] == ["B b", "a"]


def test_what_others_put_into_a_publication_stays(two: Any) -> None:
    two.run(
        "CREATE TABLE c (id int PRIMARY KEY, kept text, hidden text)",
        "CREATE TABLE z (id int PRIMARY KEY)",
        "CREATE PUBLICATION dbz_publication FOR TABLE c (id, kept) WHERE (id > 5), z",
    )
    captured = [each for each in tables(two) if each.table in ("a", "c")]
    made = ensure_publication(two.connection, config(two, "filtered"), captured)
    assert [each.table for each in made.tables] == ["a", "c", "z"]
    restricted = made.tables[1]
    assert (restricted.columns, restricted.row_filter) == (("id", "kept"), "(id > 5)")


@pytest.mark.parametrize(
    ("mode", "remedy"),
    [
        ("all_tables", "publication.autocreate.mode=filtered, or, if it may be so, make the publication yourself: "
         "CREATE PUBLICATION dbz_publication FOR ALL TABLES"),
        ("filtered", "table.exclude.list"),
    ],
)  # fmt: skip
def test_no_table_is_published_that_applications_could_not_change_any_more(two: Any, mode: str, remedy: str) -> None:
    two.run("CREATE TABLE log (line text)", "INSERT INTO log VALUES ('x')")
    two.change("log", "UPDATE log SET line = 'y'")
    with pytest.raises(Fatal) as caught:
        ensure_publication(two.connection, config(two, mode), tables(two))
    assert "UPDATE and DELETE of public.log fail" in str(caught.value)
    assert "REPLICA IDENTITY FULL" in str(caught.value)
    assert remedy in str(caught.value)
    two.run("UPDATE log SET line = 'y'", "DELETE FROM log")
    two.run("ALTER TABLE log REPLICA IDENTITY FULL")
    ensure_publication(two.connection, config(two, mode), tables(two))
    two.run("INSERT INTO log VALUES ('x')", "UPDATE log SET line = 'y'", "DELETE FROM log")


@pytest.mark.parametrize("mode", ["all_tables", "filtered"])
def test_a_table_that_only_grows_is_published_and_named(two: Any, mode: str) -> None:
    two.run("CREATE TABLE log (line text)", "INSERT INTO log VALUES ('x')")
    made = ensure_publication(two.connection, config(two, mode), tables(two))
    two.run("INSERT INTO log VALUES ('x')", "TRUNCATE log")
    assert keyless(two.connection, made, tables(two)) == "public.log"
    two.run("ALTER TABLE log REPLICA IDENTITY FULL")
    assert keyless(two.connection, made, tables(two)) is None


def test_a_table_that_somebody_published_already_is_no_worse_off(two: Any) -> None:
    two.run("CREATE TABLE log (line text)", "INSERT INTO log VALUES ('x')")
    two.change("log", "DELETE FROM log")
    two.run("CREATE PUBLICATION of_others FOR TABLE log")
    assert ensure_publication(two.connection, config(two, "all_tables"), tables(two)).all_tables


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE odd (id int PRIMARY KEY DEFERRABLE)",),
        (
            "CREATE TABLE odd (id int NOT NULL)",
            "CREATE UNIQUE INDEX chosen ON odd (id)",
            "ALTER TABLE odd REPLICA IDENTITY USING INDEX chosen",
            "DROP INDEX chosen",
        ),
        ("CREATE TABLE odd (id int PRIMARY KEY)", "ALTER TABLE odd REPLICA IDENTITY NOTHING"),
    ],
    ids=["deferrable", "index dropped", "nothing"],
)
def test_a_key_that_is_no_replica_identity(two: Any, statements: tuple[str, ...]) -> None:
    two.run(*statements, "INSERT INTO odd VALUES (1)")
    two.change("odd", "UPDATE odd SET id = 2")
    with pytest.raises(Fatal, match=r"public\.odd fail"):
        ensure_publication(two.connection, config(two, "all_tables"), tables(two))


def test_every_partition_needs_its_own_identity(two: Any) -> None:
    two.run(
        "CREATE TABLE root (id int) PARTITION BY RANGE (id)",
        "ALTER TABLE root REPLICA IDENTITY FULL",  # partitions do not take it over
        "CREATE TABLE part PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "INSERT INTO root VALUES (1)",
    )
    two.change("part", "UPDATE root SET id = 2")
    captured = catalog.read_tables(two.connection, Selection(), via_root=True)
    settings = config(two, "filtered", publish_via_partition_root="true")
    with pytest.raises(Fatal, match=r"public\.part fail"):
        ensure_publication(two.connection, settings, captured)
    two.run("ALTER TABLE part REPLICA IDENTITY FULL")
    ensure_publication(two.connection, settings, captured)
    two.run("UPDATE root SET id = 3")


def test_all_tables_are_looked_at_where_all_are_published(two: Any) -> None:
    two.run("CREATE TABLE log (line text)", "INSERT INTO log VALUES ('x')")
    two.change("log", "DELETE FROM log")
    captured = [each for each in tables(two) if each.table == "a"]
    with pytest.raises(Fatal, match=r"public\.log"):
        ensure_publication(two.connection, config(two, "all_tables"), captured)
    assert [each.table for each in ensure_publication(two.connection, config(two, "filtered"), captured).tables] == [
        "a"
    ]


def test_what_somebody_published_is_their_decision(two: Any) -> None:
    two.run("CREATE TABLE log (line text)", "CREATE PUBLICATION dbz_publication FOR ALL TABLES")
    assert ensure_publication(two.connection, config(two, "all_tables"), tables(two)).all_tables


def test_empty_on_request(two: Any) -> None:
    assert ensure_publication(two.connection, config(two, "no_tables"), tables(two)).tables == ()


def test_a_missing_one_may_not_be_made(two: Any) -> None:
    with pytest.raises(Fatal, match="CREATE PUBLICATION dbz_publication"):
        ensure_publication(two.connection, config(two, "disabled"), tables(two))


def test_nothing_to_publish(two: Any) -> None:
    with pytest.raises(Fatal, match="No table matches"):
        ensure_publication(two.connection, config(two, "filtered"), [])


def test_one_that_lacks_a_table_says_which(two: Any) -> None:
    two.run("CREATE PUBLICATION dbz_publication FOR TABLE a")
    with pytest.raises(Fatal, match=r"does not contain public\.B b; add them with ALTER PUBLICATION"):
        ensure_publication(two.connection, config(two, "all_tables"), tables(two))


def test_long_lists_are_cut(two: Any) -> None:
    text = missing_text(config(two, "disabled"), [f"public.t{number}" for number in range(8)])
    assert "public.t4 and 3 more" in text


def test_names_are_quoted(two: Any) -> None:
    hostile = 'x"; DROP TABLE a; --'
    made = ensure_publication(two.connection, config(two, "all_tables", publication_name=hostile), tables(two))
    assert made.name == hostile
    assert len(tables(two)) == 2


@pytest.mark.parametrize(
    ("mode", "there", "remedies"),
    [
        ("all_tables", "", ["FOR ALL TABLES", "publication.autocreate.mode=filtered"]),
        ("filtered", "", ["FOR TABLE …", "GRANT CREATE ON DATABASE {database} TO {user}", "the roles that own the"]),
        ("filtered", "FOR TABLE a", ["ALTER PUBLICATION dbz_publication ADD TABLE", "member of the roles that own"]),
        ("no_tables", "", ["CREATE PUBLICATION dbz_publication,", "GRANT CREATE ON DATABASE {database} TO {user}"]),
    ],
)
def test_without_the_right_the_remedy_is_not_what_is_set_already(
    two: Any, mode: str, there: str, remedies: list[str]
) -> None:
    role = f"{two.name}_weak"
    two.run(f'CREATE ROLE "{role}" LOGIN REPLICATION')
    if there:
        two.run(f"CREATE PUBLICATION dbz_publication {there}")
    try:
        with psycopg.connect(two.dsn, autocommit=True) as weak:
            weak.execute(f'SET ROLE "{role}"'.encode())
            with pytest.raises(Fatal) as caught:
                ensure_publication(weak, config(two, mode, database_user=role), tables(two))
        for remedy in remedies:
            assert remedy.format(user=role, database=two.name) in str(caught.value)
        assert f"publication.autocreate.mode={mode}" not in str(caught.value)
    finally:
        two.run(f'DROP ROLE "{role}"')
