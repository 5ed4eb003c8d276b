"""A topic as a Spark source, and a warehouse table that owns its offsets

Two things live here. `format("tidemill")` reads and writes topics from PySpark with the option names of Spark's own
Kafka source and no jar: offsets are planned on the driver, record batches are turned into Arrow columns on the
executors. The warehouse job keeps a Delta table equal to a stream of Debezium changes; each commit of the table carries
the offsets it contains, so kill -9, a lost checkpoint or another batch size can neither lose nor repeat a change.

The life of a change: `source` plans a range of offsets, `fetch` reads its record batches, `rows` finds the records,
`envelope` parses their values into typed columns, `changes` keeps the last change of each key, `tables` merges them and
notes the offsets, all in one commit. `job` drives that, `upkeep` keeps the table small.
"""
