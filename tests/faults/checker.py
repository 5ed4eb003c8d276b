"""The judge: what clients were told and saw, held against what is there in the end

It knows the histories and one reading of every partition from its beginning, and takes time and memory in proportion to
their length. It asks nobody and remembers nothing between calls.

| finding | means |
|---|---|
| `lost` | acknowledged, and not there |
| `moved` | there, but not at the offset that was acknowledged |
| `doubled` | there twice, and its writer is idempotent |
| `reordered` | of one writer in one partition, a later record stands before an earlier one |
| `phantom` | there or read, and nobody wrote it there |
| `aborted` | there, and its transaction was aborted |
| `changed` | read at an offset where another record is now |
| `vanished` | read at an offset where no record is now |
| `backwards` | a reader that kept its partition was given an offset that it was past |
| `skipped` | a reader that kept its partition was not given a record between two others |
| `set back` | a reader began before what its group had committed last, as it had been acknowledged before |
| `unseen` | a group that reads everything never read it |
| `disordered` | the reading from the beginning met offsets that do not rise |
| `unanswered` | asked for, and neither acknowledged nor refused when the writer ended |
| `unended` | a client that did not end in order: it died, or had to be killed |
| `stuck alone` | a client that was told nothing for long while others were (`gaps` says how that is counted) |

What the application was told has failed (`failed`), and what a writer without idempotence has written twice
(`repeated`), is counted and is no violation. Nor is what such a writer was told has failed, and what stands behind
later records all the same (`late`): a request may lie in a connection for as long as the network or a node that is
halted keeps it, and nothing in it tells a broker that its client has given it up.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.history import Event, Place

VIOLATIONS = (
    "lost", "moved", "doubled", "reordered", "phantom", "aborted", "changed", "vanished", "backwards", "skipped",
    "set back", "unseen", "disordered", "unanswered", "unended",
    "stuck alone",
)  # fmt: skip
EXAMPLES_MAX = 8

Record = tuple[str, int]
"""Writer and number."""


@dataclass(slots=True)
class Findings:
    """How often, and the first few of each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, what: str) -> None:
        """One more."""
        self.counts[kind] += 1
        if len(kept := self.examples.setdefault(kind, [])) < EXAMPLES_MAX:
            kept.append(what)

    @property
    def violations(self) -> dict[str, int]:
        """Those that a broker must not have."""
        return {kind: self.counts[kind] for kind in VIOLATIONS if self.counts[kind]}


@dataclass(slots=True)
class Written:
    """What one writer did; by number, of which none is left out."""

    idempotent: bool = True
    ended: bool = False
    places: dict[int, Place] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Partition:
    """One, as it is in the end."""

    offsets: list[int] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def at(self, offset: int) -> int:
        """The index of the first record from there on."""
        return bisect_left(self.offsets, offset)


def check(
    writers: Mapping[str, Iterable[Event]],
    readers: Mapping[str, Sequence[Iterable[Event]]],
    final: Iterable[Event],
) -> Findings:
    """Judge: histories by the writer's name and by the readers' group, and what a last reader read of everything."""
    findings = Findings()
    written = {name: take_in(name, events, findings) for name, events in writers.items()}
    partitions = in_the_end(final, findings)
    hold_against(written, partitions, findings)
    for group, members in readers.items():
        follow(group, members, partitions, written, findings)
    return findings


def take_in(name: str, events: Iterable[Event], findings: Findings) -> Written:
    """What a writer says that it did."""
    found = Written()
    for event in events:
        match event.kind:
            case "writer":
                found.idempotent = bool(event.number)
            case "w":
                found.places[event.number] = event.place
            case "a":
                found.offsets[event.number] = event.offset
            case "x":
                found.failed.add(event.number)
                findings.add("failed", f"{name} {event.number} to {event.place}: {event.reason}")
            case "z":
                found.aborted.add(event.number)
            case "end":
                found.ended = True
            case "e":
                findings.add("errors of writers", f"{name}: {event.reason}")
    findings.counts["written"] += len(found.places)
    findings.counts["acknowledged"] += len(found.offsets)
    if not found.ended:
        findings.add("unended", f"writer {name}")
    for number in found.places.keys() - found.offsets.keys() - found.failed - found.aborted:
        findings.add("unanswered", f"{name} {number} to {found.places[number]}")
    return found


def in_the_end(final: Iterable[Event], findings: Findings) -> dict[Place, Partition]:
    """Every partition, as it was read from its beginning."""
    found: dict[Place, Partition] = {}
    for event in final:
        if event.kind != "r":
            continue
        partition = found.setdefault(event.place, Partition())
        if partition.offsets and event.offset <= partition.offsets[-1]:
            findings.add("disordered", f"{event.place} {event.offset} after {partition.offsets[-1]}")
            continue
        partition.offsets.append(event.offset)
        partition.records.append((event.name, event.number))
    findings.counts["there in the end"] = sum(len(partition.offsets) for partition in found.values())
    return found


def hold_against(written: Mapping[str, Written], partitions: Mapping[Place, Partition], findings: Findings) -> None:
    """What is there, against what was written."""
    there: dict[str, dict[int, list[int]]] = {name: {} for name in written}
    for place, partition in partitions.items():
        latest: dict[str, int] = {}
        for offset, (name, number) in zip(partition.offsets, partition.records, strict=True):
            writer = written.get(name)
            if writer is None or writer.places.get(number) != place:
                findings.add("phantom", f"{place} {offset}: {name} {number}")
                continue
            if number in writer.aborted:
                findings.add("aborted", f"{place} {offset}: {name} {number}")
            if earlier := there[name].get(number):
                kind = "doubled" if writer.idempotent else "repeated"
                findings.add(kind, f"{place} {offset}: {name} {number}, which is at {earlier[0]}")
            elif number < latest.get(name, -1):
                kind = "late" if number in writer.failed and not writer.idempotent else "reordered"
                findings.add(kind, f"{place} {offset}: {name} {number} after {latest[name]}")
            else:
                latest[name] = number
            there[name].setdefault(number, []).append(offset)
    for name, writer in written.items():
        for number, offset in writer.offsets.items():
            offsets = there[name].get(number)
            if offsets is None:
                findings.add("lost", f"{name} {number}, acknowledged at {writer.places.get(number)} {offset}")
            elif offset not in offsets and offset >= 0:
                findings.add("moved", f"{name} {number}, acknowledged at {offset}, is at {offsets[0]}")


class Following:
    """What a group has read and committed; its members' events come in the order of time."""

    def __init__(self, group: str, partitions: Mapping[Place, Partition], findings: Findings) -> None:
        self._group = group
        self._partitions = partitions
        self._findings = findings
        self._seen = {place: bytearray(len(each.offsets)) for place, each in partitions.items()}
        self._last: dict[tuple[int, Place], int] = {}  # where a member is, since the partition is its own
        self._from: dict[tuple[int, Place], int] = {}  # what was committed when it became so
        self._committed: dict[Place, int] = {}

    def hear(self, member: int, event: Event) -> None:
        """The next event of the group."""
        own = (member, event.place)
        match event.kind:
            case "+":
                self._last.pop(own, None)
                self._from[own] = self._committed.get(event.place, 0)
            case "-":
                self._last.pop(own, None)
                self._from.pop(own, None)
            case "c":
                self._committed[event.place] = event.offset  # clients that try again may commit a lower one last
            case "r":
                self._read(own, event)
            case "e":
                self._findings.add("errors of readers", f"{self._group}: {event.reason}")

    def _read(self, own: tuple[int, Place], event: Event) -> None:
        where = f"{self._group}/{own[0]} {event.place} {event.offset}"
        self._findings.counts["read"] += 1
        partition = self._partitions.get(event.place, Partition())
        index = partition.at(event.offset)
        if index == len(partition.offsets) or partition.offsets[index] != event.offset:
            self._findings.add("vanished", f"{where}: {event.name} {event.number}")
        elif partition.records[index] != (event.name, event.number):
            self._findings.add("changed", f"{where}: {event.name} {event.number}, now {partition.records[index]}")
        else:
            self._seen[event.place][index] = 1
        last = self._last.get(own)
        if last is None:
            committed = self._from.get(own, 0)
            if event.offset < committed:
                self._findings.add("set back", f"{where}, committed was {committed}")
        elif event.offset <= last:
            self._findings.add("backwards", f"{where} after {last}")
        elif index - partition.at(last) > 1:
            self._findings.add("skipped", f"{where} after {last}")
        self._last[own] = event.offset

    def end(self) -> None:
        """What nobody read."""
        for place, seen in self._seen.items():
            for index in range(len(seen)) if 0 in seen else ():
                if not seen[index]:
                    record = self._partitions[place].records[index]
                    self._findings.add(
                        "unseen", f"{self._group} {place} {self._partitions[place].offsets[index]}: {record}"
                    )


def of_member(member: int, events: Iterable[Event]) -> Iterator[tuple[float, int, Event]]:
    """Its events, in the order in which those of several are merged."""
    for event in events:
        yield event.at, member, event


def follow(
    group: str,
    members: Sequence[Iterable[Event]],
    partitions: Mapping[Place, Partition],
    written: Mapping[str, Written],
    findings: Findings,
) -> None:
    """What a group saw, against what is there."""
    following = Following(group, partitions, findings)
    ended: set[int] = set()
    numbered = [of_member(member, events) for member, events in enumerate(members)]
    for _, member, event in heapq.merge(*numbered, key=lambda each: each[:2]):
        if event.kind == "end":
            ended.add(member)
        if event.kind == "r" and event.number not in written.get(event.name, Written()).places:
            findings.add("phantom", f"{group}/{member} read {event.place} {event.offset}: {event.name} {event.number}")
        following.hear(member, event)
    following.end()
    for member in set(range(len(members))) - ended:
        findings.add("unended", f"reader {group}/{member}")
