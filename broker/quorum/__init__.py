"""The metadata quorum: what the cluster agrees on

`metadata` decides and `image` applies (both pure), `records` are the decisions as bytes in Kafka's own format,
`snapshot` is what they led to, in the same records, `store` keeps both on disk and `loading` finds them there, what the
quorum says about itself (`control`) among them. `controller` is the shell that runs decide, append, apply in that
order. One node is a quorum of one; who decides among several is agreed on in `raft`, which `election_state` remembers.
"""
