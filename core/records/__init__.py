"""Kafka record batches, format v2: headers, records, codecs, checksums

The hot path never looks at records: it handles whole batches through `batch.BatchView` and edits only header bytes.
`record` and `builder` read and write records for the few places that need them (time lookup inside a batch, the
internal topics, tests).
"""
