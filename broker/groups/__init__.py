"""Consumer groups: who reads what, and how far they got

`machine` is the pure coordinator (members, generations, committed offsets), `records` its decisions as bytes in the
format of Kafka's `__consumer_offsets`, `coordinator` the shell that appends, waits for the disk and answers.
"""
