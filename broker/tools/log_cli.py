"""`tidemill log`: look at, check, repair and adopt a log without a broker

`dump`, `verify` and `repair` take a data folder or the folder of one partition; the first two only read and may be run
beside a broker. `adopt` takes the data folder of an Apache Kafka node. It and `repair` need the folder for themselves.
Results go to standard output, progress and complaints to standard error.

Exit status: 0 all is well (or is now), 1 something is wrong with the data, 2 the folder cannot be worked on.
"""

import dataclasses
import datetime
import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import structlog
import typer

from tidemill.broker.log.identity import FolderRefused
from tidemill.broker.log.stopped_logs import LOGS_AT_STOP
from tidemill.broker.tools.adopt import AdoptRefused
from tidemill.broker.tools.adopt import carry_out as carry_out_adoption
from tidemill.broker.tools.adopt import plan as plan_adoption
from tidemill.broker.tools.audit import AuditOptions, PartitionFacts, audit, segment_bases
from tidemill.broker.tools.dump import Row, dump_data_files, dump_partition
from tidemill.broker.tools.log_folder import LogFolder, NotALog, PartitionFolder, look
from tidemill.broker.tools.repair import SIDE_FOLDER, RepairPlan, carry_out, plan, quarantine
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.runtime.disk import OsDirectory, is_locked, lock_directory
from tidemill.core.runtime.overlay import Change, Cut, OverlayDirectory, Removed, Renamed

app = typer.Typer(
    help="Look at, check, repair and adopt a log without a broker.", no_args_is_help=True, add_completion=False
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A data folder (log.dirs) or the folder of one partition.")]
Compacted = Annotated[
    bool,
    typer.Option(help="Take every log for compacted: gaps between offsets are no fault. Needed for copies only."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]

_PROGRESS_S = 2.0
_clock = SystemClock()


@app.command()
def dump(
    directory: Folder,
    records: Annotated[bool, typer.Option("--records", help="Decode keys, values and headers too.")] = False,
    as_json: Json = False,
) -> None:
    """Print what is in the files: batches, indexes, leader epochs, producer snapshots, checkpoints.

    A batch that cannot be believed is printed as `bad` with its position and reason, and makes the exit status 1.
    """
    with _complaints(directory):
        folder = look(directory)
        bad = False
        for place, rows in _dump_rows(folder, records=records):
            for row in rows:
                bad = bad or row["kind"] == "bad"
                _print_row({"partition": place, **row} if place else row, as_json=as_json)
    raise typer.Exit(1 if bad else 0)


def _dump_rows(folder: LogFolder, *, records: bool) -> "Iterator[tuple[str, Iterator[Row]]]":
    if folder.data is not None and folder.data == folder.path:
        yield "", dump_data_files(OverlayDirectory(folder.path))
    for partition in folder.partitions:
        yield partition.path.name, dump_partition(OverlayDirectory(partition.path), records=records)


def _print_row(row: Row, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(row, ensure_ascii=False))
        return
    kind = row.pop("kind")
    partition = row.pop("partition", "")
    where = f"{partition}/{row.pop('file')}" if partition else row.pop("file")
    print(f"{where} {kind}", *(f"{name}={_shown(value)}" for name, value in row.items()))


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (str, dict, bool, type(None))) else str(value)


@app.command()
def verify(
    directory: Folder,
    records: Annotated[bool, typer.Option("--records", help="Decompress and decode every record too.")] = False,
    compacted: Compacted = False,
    as_json: Json = False,
) -> None:
    """Read everything and say, in one line per partition, whether it is whole.

    Checks every batch against its CRC and the offset that is due, indexes against the batches they point at, leader
    epochs, producer snapshots and checkpoints against the log. Changes nothing.
    """
    with _complaints(directory):
        folder = _look(directory, compacted=compacted)
        if folder.in_use:
            _say("a broker has this folder open: the very end of a log may look unfinished")
        ok = folder.metadata_problem is None
        if folder.metadata_problem is not None:
            _print_verdict("cluster metadata", False, folder.metadata_problem, (), as_json)
        progress = _Progress(folder)
        for partition in folder.partitions:
            facts = _audit(folder, partition, progress, decode=records)
            ok = ok and facts.ok
            faults = tuple(f"{'note: ' if each.is_note else ''}{each.file}: {each.text}" for each in facts.faults)
            _print_verdict(partition.path.name, facts.ok, _summary(facts), faults, as_json)
        for name in folder.skipped:
            _say(f"{name} is not looked at: no broker opens a folder of that name")
    raise typer.Exit(0 if ok else 1)


@app.command()
def repair(
    directory: Folder,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and do nothing.")] = False,
    quarantine_corrupt: Annotated[
        bool,
        typer.Option(
            "--quarantine",
            help="Also move corrupt ranges in the middle out of the log, so that consumers skip what is lost there. "
            "Without it they stay, and reads there answer CORRUPT_MESSAGE.",
        ),
    ] = False,
    compacted: Compacted = False,
) -> None:
    """Bring a log into the state a broker would, and keep everything that is cut off.

    Cuts off a torn tail, makes indexes and leader epochs anew where they do not fit the log, and tells of corrupt
    ranges. What is cut off or removed is in the folder cut-by-repair of the partition. The broker must be stopped.
    """
    left = False
    with _complaints(directory):
        folder = _look(directory, compacted=compacted)
        if folder.metadata_problem is not None:
            _say(folder.metadata_problem)
            left = True
        with _locked(folder, dry_run=dry_run):
            progress = _Progress(folder)
            stamp = _now_text()
            for partition in folder.partitions:
                if partition.is_metadata:
                    continue
                facts = _audit(folder, partition, progress)
                if facts.ok:
                    print(f"{partition.path.name}: nothing to repair")
                    continue
                if folder.data is not None and not dry_run:
                    OsDirectory(folder.data).remove(LOGS_AT_STOP)  # the next start looks for itself
                try:
                    whole = _repair_one(partition, facts, stamp, dry_run=dry_run, take_out=quarantine_corrupt)
                except FolderRefused as refused:
                    print(f"{partition.path.name}: not repaired, {refused}")
                    whole = False
                left |= not whole
    raise typer.Exit(1 if left else 0)


@app.command()
def adopt(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The data folder (log.dirs) of an Apache Kafka node.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be taken over and do nothing.")] = False,
    keep_uncommitted: Annotated[
        bool,
        typer.Option(
            "--keep-uncommitted",
            help="Accept that records of transactions that were not committed are served like all others.",
        ),
    ] = False,
    was_killed: Annotated[
        bool,
        typer.Option(
            "--was-killed",
            help="Of several nodes: this one was killed, not stopped, and its machine has stayed up since.",
        ),
    ] = False,
) -> None:
    """Make the data folder of an Apache Kafka node ours, once and for good.

    For a KRaft cluster that is stopped: topics with their ids and settings, records, leader epochs, committed offsets
    of groups, the next producer id. Of a cluster of several take over the folder of each node, stopped in order, before
    you start the first of ours; each goes on with the server.properties that it had. Kafka's own metadata log is kept
    beside ours, but there is no way back: never start Kafka on the folder again. After a crash, run it again.
    """
    with _complaints(directory):
        if not directory.is_dir():
            raise NotALog(f"{directory} is not a folder")
        data = OsDirectory(directory.resolve())
        with _exclusive(data):
            adoption = plan_adoption(
                data, now_ms=_clock.now_ms(), keep_uncommitted=keep_uncommitted, was_killed=was_killed
            )
            if not dry_run:
                carry_out_adoption(data, adoption)
        for line in adoption.taken:
            print(f"{'would be ' if dry_run else ''}taken: {line}")
        for line in adoption.not_taken:
            print(f"not taken: {line}")


def _look(directory: Path, *, compacted: bool) -> LogFolder:
    folder = look(directory)
    if not compacted:
        return folder
    partitions = tuple(_as_compacted(partition) for partition in folder.partitions)
    return dataclasses.replace(folder, partitions=partitions)


def _as_compacted(partition: PartitionFolder) -> PartitionFolder:
    """The same, all but its last segment said to have been compacted."""
    bases = segment_bases([path.name for path in partition.path.iterdir()])
    return dataclasses.replace(partition, cleaned_offset=bases[-1]) if bases else partition


def _repair_one(
    partition: PartitionFolder, facts: PartitionFacts, stamp: str, *, dry_run: bool, take_out: bool
) -> bool:
    """Repair one partition; whether nothing is left to be done."""
    label = partition.path.name
    todo = _plan(partition, facts)
    would = "would be " if dry_run else ""
    for change in todo.changes:
        print(f"{label}: {_described(change, would)}")
    for each in todo.fenced:
        end = max(each.offset_end, each.offset_start + 1) - 1
        what = f"{would}moved out, an empty batch takes their place" if take_out else "left in place, never served"
        print(
            f"{label}: {each.name} is corrupt from position {each.position} to {each.end}: offsets {each.offset_start} "
            f"to {end} {what}"
        )
    if not dry_run:
        target = OsDirectory(partition.path)
        carry_out(target, todo.changes, stamp)
        if take_out and todo.fenced:
            quarantine(target, todo.fenced, stamp)
            again = audit(OverlayDirectory(partition.path), _options(partition, clean=False))
            carry_out(target, _plan(partition, again).changes, f"{stamp}-2")
    whole = take_out or not todo.fenced
    lost = todo.offset_end < partition.recovery_point
    if lost:
        print(f"{label}: acknowledged records are missing: {todo.offset_end} to {partition.recovery_point - 1}")
    kept = (
        f"; what was cut off is in {partition.path / SIDE_FOLDER / stamp}"
        if (partition.path / SIDE_FOLDER / stamp).exists()
        else ""
    )
    verb = "would be repaired" if dry_run else "repaired"
    print(f"{label}: {verb}, offsets {todo.offset_start} to {todo.offset_end}{kept}")
    return whole and not lost


def _plan(partition: PartitionFolder, facts: PartitionFacts) -> RepairPlan:
    return plan(
        OverlayDirectory(partition.path),
        facts,
        recovery_point=partition.recovery_point if partition.recovery_point >= 0 else None,
        log_start_offset=max(partition.log_start_offset, 0),
        now_ms=_clock.now_ms(),
        cleaned_offset=partition.cleaned_offset,
    )


def _described(change: Change, would: str) -> str:
    match change:
        case Cut():
            return f"{change.name} {would}cut to {change.size_bytes} bytes, {change.cut_bytes} bytes kept aside"
        case Removed():
            return f"{change.name} {would}removed"
        case Renamed():
            return f"{change.old} {would}renamed to {change.name}: a replacement of segments is finished"
        case _:
            return f"{change.name} {would}made anew"


def _audit(
    folder: LogFolder,
    partition: PartitionFolder,
    progress: "_Progress",
    *,
    decode: bool = False,
) -> PartitionFacts:
    options = _options(partition, clean=folder.clean, in_use=folder.in_use, decode=decode)
    return audit(OverlayDirectory(partition.path), options, progress.of(partition.path.name))


def _options(partition: PartitionFolder, *, clean: bool, in_use: bool = False, decode: bool = False) -> AuditOptions:
    return AuditOptions(
        indexed=not partition.is_metadata,
        clean=clean,
        in_use=in_use,
        decode=decode,
        recovery_point=partition.recovery_point,
        log_start_offset=partition.log_start_offset,
        cleaned_offset=partition.cleaned_offset,
    )


def _print_verdict(label: str, ok: bool, text: str, faults: "tuple[str, ...]", as_json: bool) -> None:
    if as_json:
        print(json.dumps({"partition": label, "ok": ok, "summary": text, "faults": faults}, ensure_ascii=False))
        return
    print(f"{label}: {'ok' if ok else 'BAD'}, {text}")
    for fault in faults:
        print(f"  {fault}")


def _summary(facts: PartitionFacts) -> str:
    batches = sum(segment.batches for segment in facts.segments)
    count = sum(segment.records for segment in facts.segments)
    return (
        f"offsets {facts.offset_start} to {facts.offset_end}, {count} records in {batches} batches, "
        f"{len(facts.segments)} segments, {facts.size_bytes} bytes"
    )


class _Progress:
    """Lines on standard error about work that takes more than a moment."""

    def __init__(self, folder: LogFolder) -> None:
        self._total = sum(
            child.stat().st_size for each in folder.partitions for child in each.path.glob("*.log") if child.is_file()
        )
        self._done = 0
        self._said_at = _clock.monotonic()

    def of(self, label: str) -> Callable[[int], None]:
        """What the audit of the partition `label` calls."""

        def progress(size_bytes: int) -> None:
            self._done += size_bytes
            now = _clock.monotonic()
            if now - self._said_at >= _PROGRESS_S:
                self._said_at = now
                _say(f"{label}: {self._done / 2**20:.0f} of {self._total / 2**20:.0f} MiB read")

        return progress


@contextmanager
def _locked(folder: LogFolder, *, dry_run: bool) -> Iterator[None]:
    if folder.in_use:
        raise NotALog(f"a broker has {folder.data} open: stop it first")
    if dry_run or folder.data is None:
        yield
        return
    try:
        descriptor = lock_directory(OsDirectory(folder.data))
    except BlockingIOError:
        raise NotALog(f"a broker has {folder.data} open: stop it first") from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _exclusive(data: OsDirectory) -> Iterator[None]:
    """The folder for this process alone, against brokers of ours and against Apache Kafka's."""
    if is_locked(data.path):
        raise NotALog(f"a broker has {data.path} open: stop it first")
    descriptor = lock_directory(data)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kind of lock that a JVM looks for
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _complaints(directory: Path) -> Iterator[None]:
    """Turn what cannot be worked on into one line; the log's own warnings would only repeat the verdicts."""
    with structlog.testing.capture_logs():
        try:
            yield
        except (NotALog, AdoptRefused) as error:
            _say(str(error))
            raise typer.Exit(2) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` has seen enough
            raise typer.Exit(0) from None
        except OSError as error:
            _say(f"cannot work on {error.filename or directory}: {error.strerror}")
            raise typer.Exit(2) from None


def _say(text: str) -> None:
    print(f"tidemill log: {text}", file=sys.stderr, flush=True)


def _now_text() -> str:
    now = datetime.datetime.fromtimestamp(_clock.now_ms() / 1000, datetime.UTC)
    return now.strftime("%Y%m%dT%H%M%S.%fZ")
