"""Consumer groups: who reads what, and how far they got

`machine` is the pure coordinator, made of `joining` (who comes in), `rounds` (one generation after the other) and
`commits` (offsets kept and dropped); `records` are its decisions as bytes in the format of Kafka's
`__consumer_offsets`, `coordinator` is the shell that appends, waits for the disk and answers.
"""
