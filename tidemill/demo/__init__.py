"""The whole pipeline on one machine, on real input

Postgres → topic → second region → Spark table: `pipeline` starts every part as a process of its own and can kill each
of them, `load` is the business that writes to the table, `compare` decides whether the warehouse equals the source,
`cli` shows it to a person. The crash tests drive the same pipeline.
"""
