"""`python -m benchmarks [NAME …]`: run all benchmarks, or those named

Each prints one JSON object; progress goes to stderr. `--no-peers` leaves the peers out.
"""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

from benchmarks import peers

NAMES = (
    "broker",
    "cluster",
    "tls",
    "small_requests",
    "metadata",
    "failover",
    "cdc",
    "cdc_chain",
    "density",
    "bad_neighbours",
    "many_tasks",
    "mirror",
    "spark",
)
LONG = ("broker_grid", "broker_growth", "cluster_many")  # half an hour and more each: run when named


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[*NAMES, *LONG, []], help=f"which ones; by default {', '.join(NAMES)}"
    )
    parser.add_argument("--no-peers", action="store_true", help="measure ourselves only")
    parser.add_argument("--shared", action="store_true", help="density: have our tasks share processes")
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds; the median is reported")
    options = parser.parse_args()
    reason = "left out" if options.no_peers else peers.available()
    if reason:
        print(f"peers: {reason}", file=sys.stderr)
    for name in options.names or NAMES:
        print(f"benchmark {name} …", file=sys.stderr)
        module = importlib.import_module(f"benchmarks.{name}")
        with tempfile.TemporaryDirectory(prefix=f"tidemill-bench-{name}-") as folder:
            more = {"shared": True} if options.shared and name == "density" else {}
            module.run(Path(folder), with_peers=reason is None, rounds=options.rounds, **more)


if __name__ == "__main__":
    main()
