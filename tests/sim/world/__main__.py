"""Many worlds at once, on all cores, with progress

`python -m tests.sim.world --seeds 10000 --processes 2` lives through that many: three quarters of one node, a sixth of
clusters of three and a twelfth of clusters of five; `--nodes 3` has them all of one kind. It says how fast, by kind,
what was done to them, how often and in how many of them rare branches of the broker were taken, and of every one that
went wrong what and how: shrunk, as the line that `tests/sim/seeds/world.txt` keeps (`--keep` writes it there). The exit
code is 1 if any did.

`python -m tests.sim.world --planted all` hunts each wrong variant of a cluster, in worlds of three and of five nodes by
turns, and says how many it took; the exit code is 1 if `--seeds` did not find one.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

from tests.sim.world.lives import Lived, collect_rarely, live
from tests.sim.world.plan import Plan
from tests.sim.world.planted_clusters import PLANTED_IN_CLUSTERS, hunted

TWELFTHS = {1: 9, 3: 2, 5: 1}
"""Of all seeds those of worlds with so many nodes, unless one kind is asked for."""

SEEDS = Path(__file__).parent.parent / "seeds" / "world.txt"
PROGRESS_EVERY_S = 10.0


class Progress:
    """What is to be said of all that lived so far."""

    def __init__(self, nodes: int, seeds: int) -> None:
        self.nodes, self.seeds = nodes, seeds
        self.begun = self.said = time.monotonic()
        self.lived, self.events, self.simulated_s, self.faults = 0, 0, 0.0, Counter[str]()
        self.branches, self.took = Counter[str](), Counter[str]()  # how often, and in how many worlds
        self.failed: list[Lived] = []

    def note(self, lived: Lived) -> None:
        """One more."""
        self.lived += 1
        self.events += lived.events
        self.simulated_s += lived.simulated_s
        self.faults.update(lived.faults)
        self.branches.update(lived.branches)
        self.took.update(name for name, count in lived.branches.items() if count)
        if lived.failure:
            self.failed.append(lived)
            print(f"FAILED {lived.plan}  # {lived.failure}", flush=True)
        if time.monotonic() - self.said >= PROGRESS_EVERY_S:
            self.said = time.monotonic()
            print(self.line(), flush=True)

    def line(self) -> str:
        """How far, and how fast."""
        minutes = max(time.monotonic() - self.begun, 0.001) / 60
        kind = "one node" if self.nodes == 1 else f"{self.nodes} nodes"
        return (
            f"{kind}: {self.lived}/{self.seeds} seeds, {self.lived / minutes:.0f} a minute with "
            f"{self.events / minutes:.0f} events and {self.simulated_s / 3600 / minutes:.2f} simulated hours, "
            f"{len(self.failed)} failed"
        )

    def tell(self) -> None:
        """All that is to be said in the end."""
        print(self.line())
        print(" faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items())))
        took = sorted(self.took.items())
        print(" branches: " + ", ".join(f"{name} {self.branches[name]} in {worlds}" for name, worlds in took))


def shares(seeds: int) -> dict[int, int]:
    """How many worlds of each kind."""
    found = {nodes: seeds * twelfths // 12 for nodes, twelfths in TWELFTHS.items()}
    found[1] += seeds - sum(found.values())
    return found


def hunt(names: list[str], wanted: argparse.Namespace) -> int:
    """Find what is planted; 0 if all was found."""
    found = 0
    with multiprocessing.get_context("spawn").Pool(wanted.processes, maxtasksperchild=1) as pool:
        for prey in pool.imap_unordered(partial(hunted, first=wanted.first, seeds=wanted.seeds), names):
            print(prey, flush=True)
            found += prey.is_found
    return 0 if found == len(names) else 1


def main() -> int:
    """Parse the command line and live."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--nodes", type=int, choices=sorted(TWELFTHS), help="worlds with so many nodes only")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-shrink", action="store_true", help="only name the seeds that fail")
    parser.add_argument("--keep", action="store_true", help=f"add what fails to {SEEDS.name}")
    parser.add_argument("--planted", choices=("all", *PLANTED_IN_CLUSTERS), help="a wrong variant to find")
    wanted = parser.parse_args()
    if wanted.planted:
        return hunt([wanted.planted] if wanted.planted != "all" else list(PLANTED_IN_CLUSTERS), wanted)
    kinds = shares(wanted.seeds) if wanted.nodes is None else {wanted.nodes: wanted.seeds}
    failed: list[Lived] = []
    with multiprocessing.get_context("spawn").Pool(wanted.processes, collect_rarely, maxtasksperchild=200) as pool:
        for nodes, seeds in kinds.items():
            progress = Progress(nodes, seeds)
            plans = [Plan(seed, nodes) for seed in range(wanted.first, wanted.first + seeds)]
            for lived in pool.imap_unordered(partial(live, shrink=not wanted.no_shrink), plans):
                progress.note(lived)
            if seeds:
                progress.tell()
            failed += progress.failed
    if wanted.keep and failed:
        with SEEDS.open("a", encoding="utf-8") as file:
            file.writelines(f"{lived.plan}  # {lived.failure.splitlines()[0]}\n" for lived in failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
