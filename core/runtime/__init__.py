"""The four seams to the world: clock, disk, network, tasks

Everything above this package is handed its clock, its disk and its network by constructor, so a test or a simulator can
hand it others. This is the only package of `core` that may read a clock, open a file, open a socket or start a task.
"""
