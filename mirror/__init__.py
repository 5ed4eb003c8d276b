"""Mirroring between clusters by raw batches, with exact positions

The life of a batch: `flow` fetches it from the source's leader; `passthrough` edits its header so that another cluster
accepts it and recognises a repeat; `link` decides, per partition, when it may be sent and what to do about trouble;
`offsets` remembers where the offsets of the two sides part. From that map `checkpoints` translates the positions of
consumer groups, exactly. `naming`, `selection`, `config` and `formats` are MirrorMaker 2's rules and bytes, so its
files are read as they are and its tools work on what is written.
"""
