"""A Kafka client for whole record batches

Replication, the mirror and administration need raw batches and cluster state, never a Python object per record; code
that handles records uses confluent-kafka. From the bottom up: `connection` (one socket, requests in order), `metadata`
(pure: who leads what, when to ask again), `batches` (pure: produce and fetch messages), `cluster` (routing, back-off,
retry), `admin` (topics, configurations, groups).
"""
