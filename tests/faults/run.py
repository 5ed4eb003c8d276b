"""One run from beginning to end: hosts, nodes, clients, faults, and what is to be said of it

`Wanted` is the command line. A run has a folder with everything that was said by anybody.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from tests.faults import checker, clocks, gaps, history, plan, readers
from tests.faults.clients import Clients, Progress
from tests.faults.clocks import Clock
from tests.faults.disks import Disk
from tests.faults.history import Place
from tests.faults.hosts import Hosts, guardian, remove_orphans
from tests.faults.nemesis import Nemesis
from tests.faults.nodes import Nodes, code_of, kafka, ours
from tests.faults.rolling import roll

TOPICS = {"alpha": 3, "beta": 1, "gamma": 2}
"""Name and partitions; three replicas each."""
REPLICAS, MIN_ISR = 3, 2
START_WITHIN_S = 120.0
WELL_WITHIN_S = 120.0
READ_WITHIN_S = 120.0
CALM_S = 3.0
"""So long everything is well before the first fault, and after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asks for."""

    folder: Path
    seconds: float = 60
    nodes: int = 3
    seed: int = 0
    kafka: bool = False
    java: bool = True
    mode: str = "random"
    kinds: tuple[str, ...] = plan.KINDS
    rate: float = 50
    disk_mb: int = 2048
    stuck_s: float = 20
    client_stuck_s: float = 90
    code: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


class RunError(RuntimeError):
    """The run itself could not be made; says why."""


def say(text: str) -> None:
    """A line of progress."""
    print(f"faults: {text}", file=sys.stderr, flush=True)


def until(true: Callable[[], bool], seconds: float) -> bool:
    """Wait until that is so; False if it is not in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):
            if true():
                return True
        time.sleep(0.2)
    return False


@contextlib.contextmanager
def hosts_of(wanted: Wanted) -> Iterator[tuple[Hosts, dict[int, Disk], Path]]:
    """Namespaces and disks, and the run's folder; all but the folder is removed at the end, whatever happens."""
    remove_orphans()
    hosts = Hosts(range(1, wanted.nodes + 1))
    folder = wanted.folder / hosts.name
    folder.mkdir(parents=True)
    watch = guardian(hosts.name)
    try:
        disks = {number: Disk(folder / f"disk-{number}", wanted.disk_mb) for number in hosts.nodes}
        for disk in disks.values():
            disk.make()
        hosts.make()
        yield hosts, disks, folder
    finally:
        assert watch.stdin is not None
        watch.stdin.close()
        watch.wait(60)


def nodes_of(wanted: Wanted, hosts: Hosts, disks: dict[int, Disk], folder: Path) -> Nodes:
    """The cluster, not started yet."""
    if wanted.kafka:
        nodes = kafka(hosts, folder, disks, wanted.settings)
    else:
        nodes = ours(hosts, folder, disks, wanted.settings, wanted.code)
    if "clock" in wanted.kinds:
        preloaded = clocks.library(folder)
        for number, node in nodes.by_number.items():
            node.clock = Clock(folder / f"clock-{number}", preloaded)
    return nodes


def in_sync(admin: AdminClient) -> bool:
    """Whether every replica of every topic is, those of the groups' offsets as well."""
    topics = admin.list_topics(timeout=10).topics
    partitions = [each for topic in topics.values() for each in topic.partitions.values()]
    return TOPICS.keys() <= topics.keys() and all(
        each.leader > 0 and len(each.isrs) == len(each.replicas) for each in partitions
    )


def made(admin: AdminClient) -> bool:
    """Have the topics made; raises KafkaException where that is not done, as nobody may be elected yet who does it."""
    config = {"min.insync.replicas": str(MIN_ISR)}
    asked = admin.create_topics([NewTopic(name, count, REPLICAS, config=config) for name, count in TOPICS.items()])
    for answer in asked.values():
        try:
            answer.result(60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    return True


def make_topics(nodes: Nodes) -> AdminClient:
    """Ask until there is somebody to answer."""
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    if not until(lambda: len(admin.list_topics(timeout=5).brokers) == len(nodes.by_number), START_WITHIN_S):
        raise RunError("the nodes did not come up: see node-*.log")
    if not until(lambda: made(admin), START_WITHIN_S):
        raise RunError("the topics cannot be made: see node-*.log")
    if not until(lambda: in_sync(admin), START_WITHIN_S):
        raise RunError("the topics' replicas are not in sync: see node-*.log")
    return admin


def places() -> list[Place]:
    """Every partition that is written to."""
    return history.places(TOPICS.items())


def all_at_work(clients: Clients) -> bool:
    """Whether every writer has been told something and every group reads."""
    if any(client.process.poll() is not None for client in clients.all):
        raise RunError(
            f"{[each.name for each in clients.all if each.process.poll() is not None]} ended: see their logs"
        )
    for file in (*clients.writers, *clients.readers):
        text = file.read_text() if file.exists() else ""
        if "\na " not in text and "\nr " not in text and "\n+ " not in text:
            return False
    return True


@dataclass(slots=True)
class Told:
    """What a run was like, but for the histories."""

    began: float = 0.0
    ended: float = 0.0
    problems: list[str] = field(default_factory=list)
    faults: list[gaps.Broken] = field(default_factory=list)
    starts: list[gaps.Broken] = field(default_factory=list)
    ended_by_themselves: list[str] = field(default_factory=list)
    killed_at_stop: list[str] = field(default_factory=list)


def live(wanted: Wanted, hosts: Hosts, disks: dict[int, Disk], folder: Path) -> dict[str, Any]:
    """Everything but making the hosts; returns the report."""
    nodes = nodes_of(wanted, hosts, disks, folder)
    nodes.begin()
    admin = make_topics(nodes)
    clients = Clients(hosts, nodes.bootstrap, folder, TOPICS)
    clients.start(wanted.rate, java=wanted.java)
    if not until(lambda: all_at_work(clients), START_WITHIN_S):
        raise RunError("the clients are not all at work: see their logs")
    say("all clients are at work")
    told = Told(began=time.monotonic())
    time.sleep(CALM_S)
    break_it(wanted, hosts, nodes, admin, told)
    time.sleep(CALM_S)
    told.ended = time.monotonic()
    final = wind_up(clients, nodes, admin, folder, told)
    with (folder / "faults.json").open("w") as file:  # whoever wants to judge anew has all that it takes
        json.dump({**asdict(told), "seed": wanted.seed}, file, indent=1)
    report = judge(wanted, clients, final, told)
    with (folder / "report.json").open("w") as file:
        json.dump(report, file, indent=1)
    return report


def break_it(wanted: Wanted, hosts: Hosts, nodes: Nodes, admin: AdminClient, told: Told) -> None:
    """What the mode says; returns when all is well again, or does not become so."""
    nemesis = Nemesis(hosts, nodes, say)
    if wanted.mode in ("rolling", "upgrade"):
        if wanted.mode == "upgrade":
            for node in nodes.by_number.values():
                node.environ.update(code_of(Path(__file__).resolve().parent.parent.parent))
        told.faults = roll(nodes, lambda: until(lambda: in_sync(admin), WELL_WITHIN_S), say, told.problems.append)
    else:
        kinds = [kind for kind in wanted.kinds if kind in plan.KINDS]
        if wanted.mode == "each":
            faults = plan.each_once(wanted.seed, hosts.nodes, kinds)
        else:
            faults = plan.at_random(wanted.seed, wanted.seconds, hosts.nodes, kinds)
        nemesis.carry_out(faults)
        told.faults, told.starts = nemesis.done, nemesis.starts
        told.ended_by_themselves, told.killed_at_stop = nemesis.ended_by_themselves, nemesis.killed_at_stop
    began = time.monotonic()
    if until(lambda: in_sync(admin), WELL_WITHIN_S):
        say(f"all replicas are in sync {time.monotonic() - began:.1f} s after the last fault")
    else:
        told.problems.append(f"not all replicas are in sync {WELL_WITHIN_S:.0f} s after the last fault")


def wind_up(clients: Clients, nodes: Nodes, admin: AdminClient, folder: Path, told: Told) -> Path:
    """Have the writers end, read everything, and have the readers read it too; returns what was read."""
    say("the writers end")
    for client in clients.all:
        client.stop_writing()
    for client in clients.all:
        if client.reads is None and not client.stop():
            told.problems.append(f"{client.name} had to be killed")
    if not until(lambda: all(ended(file) for file in clients.writers), READ_WITHIN_S):
        told.problems.append("a writer has not ended")
    final = folder / "final.history"
    try:
        ends = readers.everything(nodes.bootstrap, final, places())
    except (TimeoutError, KafkaException) as error:
        told.problems.append(f"the last reader: {error}")
        ends = {}
    progress = Progress(clients.readers)
    if not until(lambda: caught_up(progress, ends), READ_WITHIN_S):
        told.problems.append(f"groups have not read everything: {behind(progress, ends)}")
    for client in clients.all:
        if client.reads is not None and not client.stop():
            told.problems.append(f"{client.name} had to be killed")
    return final


def ended(file: Path) -> bool:
    """Whether that history has its last line."""
    with file.open("rb") as lines:
        lines.seek(max(file.stat().st_size - 100, 0))
        return b"\nend " in lines.read()


def behind(progress: Progress, ends: Mapping[Place, int]) -> list[str]:
    """Which group has not read which partition to its end."""
    return [
        f"{group} {place} {offsets.get(place, 0)} of {end}"
        for group, offsets in progress.ends.items()
        for place, end in ends.items()
        if offsets.get(place, 0) < end
    ]


def caught_up(progress: Progress, ends: Mapping[Place, int]) -> bool:
    """Whether every group has read up to there."""
    progress.look()
    return not behind(progress, ends)


def told_of(files: Iterable[Path], kind: str = "a") -> dict[Place, list[float]]:
    """When somebody was told that a record is stored, or was given one, by partition, in the order of time."""
    found: dict[Place, list[float]] = {place: [] for place in places()}
    for file in files:
        for event in history.read(file):
            if event.kind == kind:
                found[event.place].append(event.at)
    for moments in found.values():
        moments.sort()
    return found


def told_each(clients: Clients) -> dict[str, dict[Place, list[float]]]:
    """When each writer was told that a record is stored, and each group was given one, by its name."""
    groups: dict[str, list[Path]] = {}
    for file in clients.readers:
        groups.setdefault(f"group {history.names(file)[1]}", []).append(file)
    found = {history.names(file)[1]: told_of([file]) for file in clients.writers}
    return found | {name: told_of(files, "r") for name, files in groups.items()}


def excuses(told: Told, nodes: int) -> list[gaps.Broken]:
    """The times in which something was broken, or too few nodes had started."""
    spare = min((nodes - 1) // 2, REPLICAS - MIN_ISR)
    return [*told.faults, *gaps.starting(told.starts, spare)]


def judge(wanted: Wanted, clients: Clients, final: Path, told: Told) -> dict[str, Any]:
    """The report."""
    groups: dict[str, list[Iterator[history.Event]]] = {}
    for file in clients.readers:
        groups.setdefault(history.names(file)[1], []).append(history.read(file))
    writers = {history.names(file)[1]: history.read(file) for file in clients.writers}
    findings = checker.check(writers, groups, history.read(final))
    moments = told_of(clients.writers)
    found = gaps.of_faults(moments, told.faults)
    broken, each_told = excuses(told, wanted.nodes), told_each(clients)
    stuck = gaps.stuck(moments, broken, told.began, told.ended, wanted.stuck_s)
    for name, each in each_told.items():
        for what in gaps.alone(each, moments, broken, told.began, told.ended, wanted.client_stuck_s):
            findings.add("stuck alone", f"{name} {what}")
    strict = wanted.mode in ("rolling", "upgrade")  # there nothing may reach the application
    if strict and findings.counts["failed"]:
        told.problems.append(f"{findings.counts['failed']} records have failed: {findings.examples['failed']}")
    return {
        "seed": wanted.seed,
        "broker": "kafka" if wanted.kafka else "tidemill",
        "mode": wanted.mode,
        "nodes": wanted.nodes,
        "seconds": round(told.ended - told.began, 1),
        "passed": not (findings.violations or stuck or told.problems),
        "violations": findings.violations | ({"stuck": len(stuck)} if stuck else {}),
        "problems": told.problems,
        "counts": dict(sorted(findings.counts.items())),
        "faults": len(told.faults),
        "gaps": gaps.by_kind(found),
        "starts": gaps.by_kind([(each, each.end - each.begin) for each in told.starts]),
        "quiet_s": {
            name: round(gaps.quiet_s(each, broken, told.began, told.ended), 1) for name, each in each_told.items()
        },
        "ended_by_themselves": told.ended_by_themselves,
        "killed_at_stop": told.killed_at_stop,
        "examples": {**findings.examples, **({"stuck": stuck[: checker.EXAMPLES_MAX]} if stuck else {})},
    }


def run(wanted: Wanted) -> dict[str, Any]:
    """All of it; the report says where the run's folder is."""
    with hosts_of(wanted) as (hosts, disks, folder):
        say(f"seed {wanted.seed}, process {os.getpid()}, folder {folder}")
        report = live(wanted, hosts, disks, folder)
    return {**report, "folder": str(folder)}
