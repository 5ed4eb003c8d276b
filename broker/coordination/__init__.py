"""Coordination: state that one broker keeps for all, in a partition

Whoever leads a partition of the topic coordinates what hashes to it. `contract` is what a coordinator's machine hears
and says, `leaderships` which partitions are taken up and given up with an image, `shard` one partition in one
leadership (replay, decide, append, apply, answer when durable), `runtime` all of them with their clock. Nothing here
knows what is coordinated: groups are the first, transactions will be the next.
"""
