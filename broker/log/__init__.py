"""Partitions on disk, in Kafka's own file layout

Life of a produced batch: `partition` checks its header and CRC, asks `producers` whether it is new, stamps offset and
leader epoch into the bytes and hands them to the active `segment`; `flusher` makes everything written so far durable
in one go and only then moves the high watermark, which is what consumers see. `recovery` decides at start what of all
that may be trusted, `retention` what may go, `store` owns the folder and all partitions in it. A batch is opaque bytes
on the whole way: its records are looked into for one purpose only, to find the first one at or after a timestamp.
"""
