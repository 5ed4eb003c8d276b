"""`tidemill demo`: the mission in one command, watched by a person

Everything a person reads goes to stderr; the last line on stdout is one JSON object for programs.
"""

import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tidemill.demo.pipeline import MIRRORED_TOPIC, TOPIC, Counts, Outcome, Pipeline, PipelineError
from tidemill.services import ServiceError


def demo(
    rows: Annotated[int, typer.Option(min=0, help="Rows in the table before capture starts.")] = 5_000,
    changes: Annotated[int, typer.Option(min=0, help="Row changes to make while the pipeline runs.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the load: one seed, one history.")] = 1,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds without progress after which to give up.")] = 180,
    folder: Annotated[Path | None, typer.Option(help="Where to keep all data; a temporary folder by default.")] = None,
    nodes: Annotated[int, typer.Option(min=1, max=5, help="Brokers of each of the two clusters.")] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running at the end and print addresses.")
    ] = False,
) -> None:
    """Capture a Postgres table, mirror its changes to a second cluster and keep a Spark warehouse table equal to it."""
    if rows == changes == 0:
        raise typer.BadParameter("without rows and without changes there is nothing to capture: give one of the two.")
    console = Console(stderr=True, highlight=False)
    home = folder or Path(tempfile.mkdtemp(prefix="tidemill-demo-"))
    begin = time.monotonic()
    pipeline = Pipeline(
        home, say=lambda line: console.print(line, markup=False, soft_wrap=True), seed=seed, nodes=nodes
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        outcome = _run(pipeline, console, rows, changes, timeout)
        total = round(time.monotonic() - begin, 2)
        _report(console, outcome)
        print(json.dumps(_result(pipeline, outcome, total), separators=(",", ":")), flush=True)
        if keep:
            _hold(console, pipeline)
    except (PipelineError, ServiceError, OSError) as error:
        console.print(f"tidemill demo: {error}", markup=False, soft_wrap=True)
        console.print(f"The logs are in {home / 'logs'}", markup=False)
        print(json.dumps({"ok": False, "error": str(error).splitlines()[0]}))
        raise typer.Exit(1) from None
    finally:
        pipeline.close()
    if folder is None and outcome.ok:
        shutil.rmtree(home, ignore_errors=True)
    raise typer.Exit(0 if outcome.ok else 1)


def _run(pipeline: Pipeline, console: Console, rows: int, changes: int, timeout_s: float) -> Outcome:
    pipeline.start(rows)
    assert pipeline.load is not None, "start creates the load"
    begin = time.monotonic()
    pipeline.load.start(changes)
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TextColumn("{task.completed:>8.0f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        written = progress.add_task("changes", total=changes)
        captured = progress.add_task("captured", total=None)
        mirrored = progress.add_task("mirrored", total=None)

        def show(counts: Counts) -> None:
            progress.update(written, completed=pipeline.load.progress.changes if pipeline.load else 0)
            progress.update(captured, completed=counts.captured)
            progress.update(mirrored, completed=counts.mirrored, total=max(1, counts.captured))

        while pipeline.load.running:
            show(pipeline.counts())
            time.sleep(0.3)
        pipeline.load.wait()
        pipeline.seconds["load"] = round(time.monotonic() - begin, 2)
        begin = time.monotonic()
        outcome = pipeline.wait_equal(timeout_s, on_wait=show)
        show(outcome.counts)
    pipeline.seconds["catch_up"] = round(time.monotonic() - begin, 2)
    return outcome


def _report(console: Console, outcome: Outcome) -> None:
    comparison, counts = outcome.comparison, outcome.counts
    if counts.captured != counts.mirrored:
        console.print(f"{counts.captured} records were captured, and {counts.mirrored} are in the second cluster.")
    if comparison.equal:
        console.print(f"The warehouse table equals the source table: {comparison.source_rows} rows compared.")
        return
    console.print(
        f"The tables differ: {comparison.source_rows} rows in the source, {comparison.warehouse_rows} in the warehouse."
    )
    for difference in comparison.differences:
        console.print(f"  {difference}", markup=False)


def _result(pipeline: Pipeline, outcome: Outcome, total_s: float) -> dict[str, object]:
    return {
        "ok": outcome.ok,
        "captured": outcome.counts.captured,
        "mirrored": outcome.counts.mirrored,
        "warehouse_rows": outcome.comparison.warehouse_rows,
        "equal": outcome.comparison.equal,
        "seconds": {**pipeline.seconds, "total": total_s},
    }


def _hold(console: Console, pipeline: Pipeline) -> None:
    lines = (
        f"east    {pipeline.east_address}   topic {TOPIC}",
        f"west    {pipeline.west_address}   topic {MIRRORED_TOPIC}",
        f"connect {pipeline.url}",
        f"source  {pipeline.postgres.dsn}",
        f"table   {pipeline.warehouse} (Delta)",
        "Everything keeps running; Ctrl-C stops it.",
    )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print("stopping")
