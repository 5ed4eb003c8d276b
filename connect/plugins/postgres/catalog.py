"""What the database knows about itself

The questions asked of system catalogs and the values their answers become. Decisions about them are elsewhere
(`startup`, `preflight`, `table`). Every query works on PostgreSQL 12 and later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from tidemill.connect.plugins.postgres.lsn import parse_lsn
from tidemill.connect.plugins.postgres.progress import Lineage
from tidemill.connect.plugins.postgres.selection import Selection
from tidemill.connect.plugins.postgres.table import CatalogColumn, CatalogTable
from tidemill.connect.plugins.postgres.types.resolve import PgType, TypeCatalog

Connection = psycopg.Connection[Any]

_TYPES = """
{wanted}SELECT t.oid::bigint, t.typname, t.typtype::text,
       CASE WHEN t.typcategory = 'A' AND t.typlen = -1 THEN t.typelem::bigint ELSE 0 END,
       t.typbasetype::bigint, t.typtypmod, t.typndims,
       coalesce((SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e
                 WHERE e.enumtypid = t.oid), '{{}}'),
       t.typdelim::text
FROM pg_type t WHERE t.typtype <> 'c' AND t.typtype <> 'p' AND {condition}
"""

_WANTED_TYPES = """
WITH RECURSIVE wanted(oid) AS (
    SELECT unnest(%s::bigint[]::oid[])
    UNION SELECT part.oid FROM wanted JOIN pg_type w ON w.oid = wanted.oid,
                 LATERAL (VALUES (w.typbasetype), (w.typelem)) AS part(oid) WHERE part.oid <> 0
)
"""
"""The types named, and those they are made of."""

_TABLES = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relreplident::text, c.relkind = 'p',
       ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(attnum, position)
             JOIN pg_attribute a ON a.attnum = k.attnum
             WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND k.position <= i.indnkeyatts
             ORDER BY k.position),
       ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(attnum, position)
             JOIN pg_attribute a ON a.attnum = k.attnum
             WHERE i.indrelid = c.oid AND i.indisreplident AND c.relreplident = 'i' AND a.attrelid = c.oid
               AND k.position <= i.indnkeyatts
             ORDER BY k.position),
       (SELECT array_agg(a.attname::text ORDER BY k.position)
        FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(attnum, position)
        JOIN pg_attribute a ON a.attnum = k.attnum
        WHERE a.attrelid = c.oid AND k.position <= i.indnkeyatts
          AND i.indexrelid = (
              SELECT u.indexrelid FROM pg_index u JOIN pg_class x ON x.oid = u.indexrelid
              WHERE u.indrelid = c.oid AND u.indisunique AND u.indisvalid AND u.indimmediate
                AND u.indpred IS NULL AND u.indexprs IS NULL
                AND NOT EXISTS (SELECT FROM pg_attribute o WHERE o.attrelid = c.oid AND NOT o.attnotnull
                                AND o.attnum = ANY(u.indkey::smallint[]))
              ORDER BY x.relname LIMIT 1))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname NOT LIKE 'pg\\_%%'
  AND n.nspname <> 'information_schema' AND {condition}
ORDER BY n.nspname, c.relname
"""

_STORAGE = """
WITH RECURSIVE tree (root, oid) AS (
    SELECT each, each FROM unnest(%s::bigint[]::oid[]) AS each
    UNION SELECT tree.root, i.inhrelid FROM tree JOIN pg_class p USING (oid) JOIN pg_inherits i ON i.inhparent = p.oid
    WHERE p.relkind = 'p'
)
SELECT tree.root::bigint, c.oid::bigint, c.relfilenode::bigint FROM tree JOIN pg_class c USING (oid) ORDER BY 1, 2
"""

_KEYLESS = """
WITH RECURSIVE tree (oid) AS (
    SELECT unnest(%(tables)s::bigint[]::oid[])
    UNION SELECT i.inhrelid FROM tree JOIN pg_class p USING (oid) JOIN pg_inherits i ON i.inhparent = p.oid
    WHERE p.relkind = 'p'
), sent AS (
    SELECT t.schemaname, t.tablename FROM pg_publication_tables t JOIN pg_publication p USING (pubname)
    GROUP BY 1, 2 HAVING bool_or(p.pubupdate) AND bool_or(p.pubdelete)
)
SELECT n.nspname, c.relname, pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid),
       (n.nspname, c.relname) IN (SELECT schemaname, tablename FROM sent)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname NOT LIKE 'pg\\_%%'
  AND n.nspname <> 'information_schema' AND c.relreplident <> 'f'
  AND (%(tables)s::bigint[] IS NULL OR c.oid IN (SELECT oid FROM tree))
  AND NOT EXISTS (
      SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
      AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END)
ORDER BY n.nspname, c.relname
"""
"""As the server decides it: a deferrable key does not count, nor does an identity whose index was dropped, and a
partition needs its own."""

_RIGHTS = """
SELECT r.rolsuper,
       has_database_privilege(current_database(), 'CREATE'),
       coalesce((SELECT pg_has_role(p.pubowner, 'USAGE') FROM pg_publication p WHERE p.pubname = %s), false),
       ARRAY(SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE c.oid = ANY(%s::bigint[]::oid[]) AND NOT pg_has_role(c.relowner, 'USAGE') ORDER BY 1)
FROM pg_roles r WHERE r.rolname = current_user
"""
_COLUMNS = """
SELECT a.attrelid::bigint, a.attname, a.atttypid::bigint, a.atttypmod, a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid), a.attndims, a.attgenerated <> ''
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = ANY(%s::bigint[]::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server and our role on it."""

    version: int  # e.g. 150018
    system_id: str
    timeline: int
    wal_level: str
    superuser: bool
    replication: bool
    wal_insert_lsn: int
    in_recovery: bool

    @property
    def lineage(self) -> Lineage:
        """The log that positions on this server belong to."""
        return Lineage(system_id=self.system_id, timeline=self.timeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A row of pg_replication_slots."""

    name: str
    kind: str  # logical or physical
    plugin: str | None
    database: str | None
    active_pid: int | None
    confirmed_lsn: int | None
    wal_status: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """A table of a publication, with the columns and rows it lets through, where it restricts them."""

    schema: str
    table: str
    columns: tuple[str, ...] | None = None
    row_filter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A publication and what is in it."""

    name: str
    all_tables: bool
    via_root: bool
    tables: tuple[PublishedTable, ...]

    @property
    def by_name(self) -> dict[tuple[str, str], PublishedTable]:
        """The tables by schema and name."""
        return {(each.schema, each.table): each for each in self.tables}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishingRights:
    """What our role may do to publish tables."""

    superuser: bool  # who may do anything; where a provider lets others do it too, only trying tells
    create: bool  # make one at all in this database
    owns_publication: bool  # false, too, if there is none
    others_tables: tuple[str, ...]  # those it does not own; only owners may put a table into a publication


@dataclass(frozen=True, slots=True, kw_only=True)
class KeylessTable:
    """A table whose rows the log cannot tell apart: while it is published its UPDATE and DELETE fail."""

    schema: str
    table: str
    changes: int  # rows updated and deleted since the server began to count
    published: bool  # with both, whoever did that

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


def read_server(connection: Connection) -> Server:
    """Ask the server about itself; works for any role that may log in."""
    row = _one(
        connection,
        """
        SELECT current_setting('server_version_num')::int,
               (SELECT system_identifier::text FROM pg_control_system()),
               CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint())
               ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int END,
               current_setting('wal_level'), r.rolsuper,
               r.rolreplication OR r.rolsuper OR EXISTS (
                   SELECT FROM pg_roles g WHERE g.rolname IN ('rds_replication', 'rds_superuser', 'cloudsqlsuperuser')
                   AND pg_has_role(current_user, g.oid, 'MEMBER')),
               pg_is_in_recovery(),
               (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END)::text
        FROM pg_roles r WHERE r.rolname = current_user
        """,
    )
    assert row is not None, "the current role exists"
    version, system_id, timeline, wal_level, superuser, replication, in_recovery, insert_lsn = row
    return Server(
        version=version,
        system_id=system_id,
        timeline=timeline,
        wal_level=wal_level,
        superuser=superuser,
        replication=replication,
        wal_insert_lsn=parse_lsn(insert_lsn),
        in_recovery=in_recovery,
    )


def read_slot(connection: Connection, name: str) -> Slot | None:
    """Return a replication slot, None if there is none of that name."""
    row = _one(
        connection,
        """
        SELECT slot_name, slot_type, plugin, database, active_pid, confirmed_flush_lsn::text,
               to_jsonb(s) ->> 'wal_status'
        FROM pg_replication_slots s WHERE slot_name = %s
        """,
        name,
    )
    if row is None:
        return None
    slot_name, kind, plugin, database, active_pid, confirmed, wal_status = row
    return Slot(
        name=slot_name,
        kind=kind,
        plugin=plugin,
        database=database,
        active_pid=active_pid,
        confirmed_lsn=None if confirmed is None else parse_lsn(confirmed),
        wal_status=wal_status,
    )


def read_publication(connection: Connection, name: str) -> Publication | None:
    """Return a publication, None if there is none of that name."""
    row = _one(
        connection,
        "SELECT puballtables, coalesce((to_jsonb(p) ->> 'pubviaroot')::boolean, false) "
        "FROM pg_publication p WHERE pubname = %s",
        name,
    )
    if row is None:
        return None
    tables = connection.execute(
        """
        SELECT schemaname, tablename, to_jsonb(t) -> 'attnames', to_jsonb(t) ->> 'rowfilter'
        FROM pg_publication_tables t WHERE pubname = %s ORDER BY schemaname, tablename
        """,
        (name,),
    ).fetchall()
    return Publication(
        name=name,
        all_tables=row[0],
        via_root=row[1],
        tables=tuple(
            PublishedTable(
                schema=schema, table=table, columns=None if names is None else tuple(names), row_filter=row_filter
            )
            for schema, table, names, row_filter in tables
        ),
    )


def read_publishing_rights(
    connection: Connection, publication: str, tables: Sequence[CatalogTable]
) -> PublishingRights:
    """Ask whether our role may make this publication, or put these tables into it."""
    row = _one(connection, _RIGHTS, publication, [each.oid for each in tables])
    assert row is not None, "the current role exists"
    superuser, create, owns_publication, others_tables = row
    return PublishingRights(
        superuser=superuser,
        create=create,
        owns_publication=owns_publication,
        others_tables=tuple(others_tables),
    )


def read_keyless(connection: Connection, tables: Sequence[CatalogTable] | None = None) -> list[KeylessTable]:
    """Return the tables without usable replica identity, among `tables` and their partitions or in the database."""
    oids = None if tables is None else [each.oid for each in tables]
    return [
        KeylessTable(schema=schema, table=table, changes=changes, published=published)
        for schema, table, changes, published in connection.execute(_KEYLESS, {"tables": oids}).fetchall()
    ]


def read_types(connection: Connection) -> TypeCatalog:
    """Return the database's types."""
    query = _TYPES.format(wanted="", condition="true")
    return TypeCatalog(_type(row) for row in connection.execute(query.encode()).fetchall())


def read_these_types(connection: Connection, oids: Sequence[int]) -> list[PgType]:
    """Return a few types and those they are made of: the base of a domain, the element of an array."""
    query = _TYPES.format(wanted=_WANTED_TYPES, condition="t.oid IN (SELECT oid FROM wanted)")
    return [_type(row) for row in connection.execute(query.encode(), (list(oids),)).fetchall()]


def _type(row: Sequence[Any]) -> PgType:
    oid, name, kind, element, base, modifier, dimensions, labels, delimiter = row
    return PgType(
        oid=oid,
        name=name,
        kind=kind,
        element_oid=element,
        base_oid=base,
        base_modifier=modifier,
        dimensions=dimensions,
        labels=tuple(labels),
        delimiter=delimiter,
    )


def read_tables(connection: Connection, selection: Selection, *, via_root: bool) -> list[CatalogTable]:
    """Return the captured tables; of partitioned ones the leaves, or only the root where changes go under its name."""
    condition = "NOT c.relispartition" if via_root else "c.relkind = 'r'"
    return [table for table in _tables(connection, condition) if selection.table(table.schema, table.table)]


def read_table(connection: Connection, oid: int) -> CatalogTable | None:
    """Return one table."""
    found = _tables(connection, "c.oid = %s::bigint::oid", oid)
    return found[0] if found else None


def read_storage(connection: Connection, tables: Sequence[CatalogTable]) -> list[tuple[int, int, int]]:
    """Return where rows are: a table, itself or a partition of it, and the file, which a rewrite changes."""
    return list(connection.execute(_STORAGE, ([each.oid for each in tables],)).fetchall())


def read_money_scale(connection: Connection) -> int:
    """Return how many digits of money stand after the point, in a session with the server's own lc_monetary."""
    row = _one(connection, "SELECT scale(1::money::numeric)")
    assert row is not None, "a query without a table has a row"
    return int(row[0])


def read_history(connection: Connection, timeline: int) -> dict[int, int]:
    """Ask on a replication connection where each timeline before `timeline` ended."""
    result = connection.execute(f"TIMELINE_HISTORY {timeline}".encode()).pgresult
    text = b"" if result is None else result.get_value(0, 1) or b""
    return timeline_history(text.decode())


def timeline_history(text: str) -> dict[int, int]:
    """Read a timeline's history file: a line has a timeline, the position where it ended, and why."""
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    return {int(line[0]): parse_lsn(line[1]) for line in lines if len(line) >= 2}


def _tables(connection: Connection, condition: str, *values: Any) -> list[CatalogTable]:
    rows = connection.execute(_TABLES.format(condition=condition).encode(), values).fetchall()
    columns: dict[int, list[CatalogColumn]] = {row[0]: [] for row in rows}
    for oid, *parts in connection.execute(_COLUMNS, (list(columns),)).fetchall():
        name, type_oid, modifier, not_null, default, dimensions, generated = parts
        columns[oid].append(
            CatalogColumn(
                name=name,
                type_oid=type_oid,
                modifier=modifier,
                not_null=not_null,
                default=default,
                dimensions=dimensions,
                generated=generated,
            )
        )
    return [
        CatalogTable(
            oid=oid,
            schema=schema,
            table=table,
            replica_identity=identity,
            columns=tuple(columns[oid]),
            primary_key=tuple(primary),
            identity_index=tuple(index),
            unique_index=tuple(unique or ()),
            partitioned=partitioned,
        )
        for oid, schema, table, identity, partitioned, primary, index, unique in rows
    ]


def _one(connection: Connection, query: str, *values: Any) -> Sequence[Any] | None:
    row: Sequence[Any] | None = connection.execute(query.encode(), values).fetchone()
    return row
