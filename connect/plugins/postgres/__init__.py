"""PostgreSQL change capture: the life of a change from the WAL to a record

`transport` owns a replication connection and hands over raw frames. `stream` turns frames into batches of serialised
records: `pgoutput` decodes what is rare (begin, commit, relation), code that `codegen` made for one relation decodes
rows, `types` says how a column's text becomes JSON, `envelope` joins the bytes of a Debezium record. `snapshot` feeds
rows of an initial load through the same generated code. `progress` decides what may be confirmed to the server, so
that PostgreSQL never throws away WAL whose records are not safe yet. `source` is the task that holds these together;
`config` has Debezium's setting names; `catalog` and `preflight` ask the database about itself.

Where we differ from Debezium 3.6 on purpose:

- Types Debezium leaves out (composites, `pg_lsn`, multiranges, …) are text; array columns may have several dimensions.
- A null is never replaced by the column's default, neither in rows nor in what a delete does not know; Kafka's JSON
  converter does so unless told otherwise. Only columns that may not be null get a stand-in there.
- Years before Christ, infinite dates, numeric with a negative scale, `name` columns in the stream and key columns that
  are excluded from values come out right.
- A table without key has no tombstones: a record without key and value says nothing.
- A slot that stands ahead of the stored offset is refused (`offset.mismatch.strategy=strict`), because it is a gap.
- `__debezium.context.*` headers are sent on request only (`extended.headers.enabled`).
- An interrupted snapshot starts again from a new temporary slot; the connector's own slot is never dropped for it.
- Confirmed is what is stored, nothing else; an idle table advances by keepalives, at the price of an offset record.

The order in which to read: `pgoutput`, `progress`, `codegen`, `stream`, `source`.
"""
