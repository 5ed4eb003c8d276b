"""The metadata quorum: what the cluster agrees on

`metadata` decides and `image` applies (both pure), `records` are the decisions as bytes in Kafka's own format,
`snapshot` is what they led to, in the same records, `store` keeps both on disk, `controller` is the shell that runs
decide, append, apply in that order. One node is a quorum of one: a consensus log will stand where `store` appends
today, and nothing above it changes.
"""
