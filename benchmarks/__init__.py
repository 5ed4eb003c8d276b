"""Measurements: one JSON object per run, peers beside us in the same run

Never part of a test: a test asserts behaviour, a benchmark prints figures. `python -m benchmarks` runs all, or those
named.
"""
