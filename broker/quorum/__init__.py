"""The metadata quorum: what the cluster agrees on

`metadata` decides and `image` applies (both pure), `records` are the decisions as bytes in Kafka's own format,
`snapshot` is what they led to, in the same records, `store` keeps both on disk and `loading` finds them there, what the
quorum says about itself (`control`) among them. `controller` is the shell that runs decide, append, apply in that
order. One node is a quorum of one; who decides among several is agreed on in `raft`, which `election_state` remembers.

gRPC, by which nodes call each other, is told before anybody can import it that its own log is not wanted: it has a line
for every handshake that fails, of whom it does not say. What is wrong is told by `grpc_tls`.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
