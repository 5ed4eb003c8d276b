"""Replication: what a broker is to each of its partitions

`partition` is the machine that knows the rules, `actions` are what it says, `replica` joins it with a log and with
those who wait, `replicas` has all of a broker's.
"""
