"""What the catalogs say"""

from typing import Any

import pytest

from tidemill.connect.plugins.postgres import catalog
from tidemill.connect.plugins.postgres.progress import Lineage
from tidemill.connect.plugins.postgres.selection import Filter, Selection
from tidemill.connect.plugins.postgres.types.conversion import Modes

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


def test_the_server_and_our_role(database: Any) -> None:
    server = catalog.read_server(database.connection)
    assert server.version >= 120000
    assert server.wal_level == "logical"
    assert server.superuser and server.replication and not server.in_recovery
    assert server.system_id.isdigit()
    assert server.wal_insert_lsn > 0
    [(timeline,)] = database.rows("SELECT timeline_id FROM pg_control_checkpoint()")
    assert server.timeline == timeline
    assert server.lineage == Lineage(system_id=server.system_id, timeline=timeline)


def test_the_history_of_a_timeline() -> None:
    text = "1\t0/3000060\tno recovery target specified\n\n2\t1/4000000\tbefore 2026 # a remark\n# nothing\n"
    assert catalog.timeline_history(text) == {1: 0x3000060, 2: 0x1_0400_0000}


def test_a_table_that_is_rewritten_has_other_files(database: Any) -> None:
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY, n int)",
        "CREATE TABLE p (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
    )
    tables = catalog.read_tables(database.connection, Selection(), via_root=True)
    before = catalog.read_storage(database.connection, tables)
    assert len(before) == 3, "the partition's too"
    database.run("INSERT INTO a VALUES (1, 2)", "ALTER TABLE a ADD COLUMN m int")
    assert catalog.read_storage(database.connection, tables) == before
    database.run("ALTER TABLE p ALTER n TYPE text")
    after = catalog.read_storage(database.connection, tables)
    assert sum(each not in before for each in after) == 1


def test_keys_in_the_order_of_their_index(database: Any) -> None:
    database.run(
        "CREATE TABLE a_primary (x int, y int, z int, PRIMARY KEY (z, x) INCLUDE (y))",
        "CREATE TABLE b_identity (x int NOT NULL, y int PRIMARY KEY)",
        "CREATE UNIQUE INDEX chosen ON b_identity (x)",
        "ALTER TABLE b_identity REPLICA IDENTITY USING INDEX chosen",
        "CREATE TABLE c_unique (x int NOT NULL, y int NOT NULL, z int, UNIQUE (z), UNIQUE (y, x))",
        "CREATE UNIQUE INDEX c_a_partial ON c_unique (x) WHERE x > 1",
        "CREATE UNIQUE INDEX c_an_expression ON c_unique ((x + 1))",
        "CREATE TABLE d_none (x int)",
        "ALTER TABLE d_none REPLICA IDENTITY FULL",
    )
    tables = catalog.read_tables(database.connection, Selection(), via_root=False)
    assert [(each.table, each.key, each.replica_identity) for each in tables] == [
        ("a_primary", ("z", "x"), "d"),
        ("b_identity", ("x",), "i"),
        ("c_unique", ("y", "x"), "d"),
        ("d_none", (), "f"),
    ]


def test_columns_with_all_that_is_known(database: Any) -> None:
    database.run(
        "CREATE TABLE a (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, gone int, n numeric(6,2) DEFAULT 1.5,"
        " twice numeric GENERATED ALWAYS AS (n * 2) STORED, deep int[][], note varchar(5) NOT NULL DEFAULT 'x')",
        "ALTER TABLE a DROP COLUMN gone",
    )
    [table] = catalog.read_tables(database.connection, Selection(), via_root=False)
    found = {each.name: each for each in table.columns}
    assert list(found) == ["id", "n", "twice", "deep", "note"]
    assert found["id"].not_null and found["id"].default is None
    assert (found["n"].modifier, found["n"].default) == (((6 << 16) | 2) + 4, "1.5")
    assert found["twice"].generated
    assert found["deep"].dimensions == 2
    assert found["note"].default == "'x'::character varying"
    assert catalog.read_table(database.connection, table.oid) == table
    assert catalog.read_table(database.connection, 0) is None


def test_only_ordinary_tables_are_captured(database: Any) -> None:
    database.run(
        "CREATE TABLE kept (id int)",
        "CREATE VIEW a_view AS SELECT 1 AS x",
        "CREATE UNLOGGED TABLE unlogged (id int)",
        "CREATE TEMPORARY TABLE temporary (id int)",
        "CREATE MATERIALIZED VIEW materialized AS SELECT 1 AS x",
        "CREATE SCHEMA other",
        "CREATE TABLE other.kept (id int)",
    )
    tables = catalog.read_tables(database.connection, Selection(), via_root=False)
    assert [(each.schema, each.table) for each in tables] == [("other", "kept"), ("public", "kept")]
    only = Selection(schemas=Filter.of("other"))
    assert len(catalog.read_tables(database.connection, only, via_root=False)) == 1


def test_types(database: Any) -> None:
    database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "ALTER TYPE mood ADD VALUE 'meh' BEFORE 'ok'",
        "CREATE DOMAIN price AS numeric(8,2)",
        "CREATE DOMAIN grid AS int[][]",
    )
    types = catalog.read_types(database.connection)
    [(mood, moods, price, grid)] = database.rows(
        "SELECT 'mood'::regtype::oid::int, 'mood[]'::regtype::oid::int, 'price'::regtype::oid::int,"
        " 'grid'::regtype::oid::int"
    )
    assert types.conversion(mood, -1, Modes()).schema.parameters == {"allowed": "sad,meh,ok"}
    assert types.conversion(moods, -1, Modes()).convert(b"{meh}") == b'["meh"]'
    assert types.conversion(price, -1, Modes()).convert(b"12.30") == b'"BM4="'
    assert types.conversion(grid, -1, Modes()).convert(b"{{1}}") == b"[[1]]"


def test_slots_and_publications(database: Any) -> None:
    assert catalog.read_slot(database.connection, database.name) is None
    database.run(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')")
    slot = catalog.read_slot(database.connection, database.name)
    assert slot is not None
    assert (slot.kind, slot.plugin, slot.database, slot.active_pid) == ("logical", "pgoutput", database.name, None)
    assert slot.confirmed_lsn is not None and slot.confirmed_lsn > 0
    assert slot.wal_status in ("reserved", None)
    assert catalog.read_publication(database.connection, "p") is None
    database.run("CREATE TABLE a (id int PRIMARY KEY, n int)", "CREATE PUBLICATION p FOR TABLE a")
    publication = catalog.read_publication(database.connection, "p")
    assert publication is not None and not publication.all_tables and not publication.via_root
    assert [(each.schema, each.table) for each in publication.tables] == [("public", "a")]


def test_a_role_without_rights_may_ask(database: Any) -> None:
    database.run(
        f'CREATE ROLE "{database.name}_weak" LOGIN',
        f'SET ROLE "{database.name}_weak"',
    )
    try:
        server = catalog.read_server(database.connection)
        assert not server.superuser and not server.replication
        assert catalog.read_types(database.connection) is not None
        assert catalog.read_tables(database.connection, Selection(), via_root=False) == []
    finally:
        database.run("RESET ROLE", f'DROP ROLE "{database.name}_weak"')
