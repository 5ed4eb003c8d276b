"""The command line: `python -m tests.faults --minutes 30 --nodes 3 --seed 7 [--kafka]`

Progress goes to standard error, one JSON object to standard output. The exit status is 1 if anything was found, and 2
if the run could not be made.
"""

import argparse
import contextlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import peers
from tests.faults import clocks, hosts, plan
from tests.faults.run import RunError, Wanted, run, say


def checkout(commit: str, folder: Path) -> Path:
    """The code of another commit, in a folder of its own."""
    packed = subprocess.run(["git", "archive", commit], capture_output=True, check=False)
    if packed.returncode != 0:
        raise RunError(f"{commit} is no commit here: {packed.stderr.decode().strip()}")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


def parse() -> argparse.Namespace:
    """The words."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--nodes", type=int, default=3, choices=(3, 4, 5))
    parser.add_argument("--seed", type=int, default=None, help="of the faults; by default a new one")
    parser.add_argument("--kafka", action="store_true", help="break Apache Kafka instead")
    parser.add_argument("--no-java", action="store_true", help="without the Java client")
    parser.add_argument("--mode", choices=("random", "each", "rolling", "upgrade"), default="random")
    parser.add_argument("--from", dest="commit", help="the commit whose code runs first, for --mode upgrade")
    parser.add_argument("--kinds", default=",".join(plan.KINDS), help="kinds of faults")
    parser.add_argument("--rate", type=float, default=50, help="records in a second, of each writer")
    parser.add_argument("--disk-mb", type=int, default=2048)
    parser.add_argument("--stuck-s", type=float, default=20, help="a partition is stuck after so long without reason")
    parser.add_argument("--client-stuck-s", type=float, default=90, help="and a client that is alone with it")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of every node")
    parser.add_argument(
        "--folder", type=Path, help="where everything is kept; by default it is removed if nothing was found"
    )
    parser.add_argument("--plan", action="store_true", help="only show the faults")
    return parser.parse_args()


def main() -> int:
    """Parse the command line and run."""
    words = parse()
    seed = random.randrange(1 << 30) if words.seed is None else words.seed
    kinds = tuple(kind for kind in words.kinds.split(",") if kind)
    if unknown := set(kinds) - set(plan.KINDS):
        say(f"no such kinds: {', '.join(sorted(unknown))}; there are {', '.join(plan.KINDS)}")
        return 2
    if words.plan:
        for each in plan.at_random(seed, words.minutes * 60, range(1, words.nodes + 1), kinds):
            print(each)
        return 0
    if reason := hosts.missing() or (peers.available() if words.kafka or not words.no_java else None):
        say(f"cannot run here: {reason}")
        return 2
    if "clock" in kinds and (reason := clocks.missing()):
        say(f"no clocks are stepped: {reason}")
        kinds = tuple(kind for kind in kinds if kind != "clock")
    folder = words.folder or Path(tempfile.mkdtemp(prefix="tidemill-faults-"))
    return run_in(folder, words, seed, kinds)


def run_in(folder: Path, words: argparse.Namespace, seed: int, kinds: tuple[str, ...]) -> int:
    """One run in a folder, which is removed if it is ours and nothing was found."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        wanted = Wanted(
            folder=folder, seconds=words.minutes * 60, nodes=words.nodes, seed=seed, kafka=words.kafka,
            java=not words.no_java, mode=words.mode, kinds=kinds, rate=words.rate, disk_mb=words.disk_mb,
            stuck_s=words.stuck_s, client_stuck_s=words.client_stuck_s,
            settings=dict(each.split("=", 1) for each in words.set),
            code=checkout(words.commit, folder / "code") if words.commit else None,
        )  # fmt: skip
        report = run(wanted)
    except (RunError, hosts.HostsError) as error:
        say(f"{error} (in {folder})")
        return 2
    print(json.dumps(report))
    if report["passed"] and words.folder is None:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
