"""A rolling restart: one node after the other is asked to end and starts again, perhaps with other code

The next one has its turn when every replica is in sync, as an operator does it.
"""

import time
from collections.abc import Callable

from tests.faults.gaps import Broken
from tests.faults.nodes import Nodes

PAUSE_S = 2.0


def roll(
    nodes: Nodes, well: Callable[[], bool], say: Callable[[str], None], problem: Callable[[str], None]
) -> list[Broken]:
    """Each node once; returns what is to be known as faults."""
    found = []
    for number, node in nodes.by_number.items():
        begin = time.monotonic()
        if not node.stop():
            problem(f"node {number} did not end when it was asked to")
        stopped = time.monotonic()
        say(f"node {number} has ended in {stopped - begin:.2f} s")
        node.begin()
        if not well():
            problem(f"not all replicas are in sync after node {number} has started again")
        found.append(Broken(kind="restart", nodes=(number,), begin=begin, end=time.monotonic()))
        say(f"all replicas are in sync {time.monotonic() - stopped:.1f} s later")
        time.sleep(PAUSE_S)
    return found
