"""Consumer groups: who reads what, and how far they got

A group is one of a few kinds (`kinds`; `membership` has the classic one). `machine` keeps those of one partition of
`__consumer_offsets`; it is made of `joining` (who comes in), `rounds` (one generation after the other) and `commits`
(offsets kept and dropped); `records` are its decisions as bytes in Kafka's format. `coordinator` is what handlers ask:
it finds the machine that keeps a group, which `tidemill.broker.coordination` runs.
"""
