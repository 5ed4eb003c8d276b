"""A Kafka-protocol broker: the log, the metadata quorum, consumer groups

The life of a request: `server` reads a frame and keeps responses in order, `dispatch` finds the handler of the API
key and decodes the body, a module of `handlers` answers with the help of the log (`log`), the cluster image
(`quorum`) or a group (`groups`), and errors become protocol codes in one place on the way out. `node` puts the parts
together and owns their lifetime; `cli` is `tidemill broker`. Decisions are pure machines (`quorum.metadata`,
`groups.machine`); disk, clock and sockets come in by constructor. Nothing here imports Connect, the mirror or Spark:
they are clients.
"""
