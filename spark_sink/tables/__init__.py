"""Warehouse tables whose commits carry the offsets they contain

A target knows, per partition, the next offset it has not seen, and moves rows and offsets in one atomic commit. That
is all the exactness there is: whoever feeds it may repeat, overlap or restart at will. `plan` decides what a batch adds
to a table, `evolution` whether its columns fit, `delta` writes.
"""
