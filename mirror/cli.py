"""`tidemill mirror`: run the flows of an mm2.properties file

Runs in the foreground until SIGTERM or SIGINT. Standard output gets one readiness line, and one line when it ends;
everything else is the log on standard error.
"""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import structlog
import typer
from prometheus_client import CollectorRegistry, start_http_server
from rich.console import Console
from rich.table import Table

from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.config import ConfigError, parse_config_text
from tidemill.core.errors import KafkaError
from tidemill.mirror.config import MirrorConfig, parse_mirror_config
from tidemill.mirror.flow import Preflight
from tidemill.mirror.inspection import FlowInspector
from tidemill.mirror.map_store import Fenced
from tidemill.mirror.progress import FlowCollector
from tidemill.mirror.runner import MirrorRunner

RowT = TypeVar("RowT")

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Mirror topics and consumer groups between clusters."
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="settings as for MirrorMaker 2 (mm2.properties)")]


@app.callback()
def mirror() -> None:
    """Mirror topics and consumer groups between clusters."""


@app.command()
def start(
    file: FileArgument,
    clusters: Annotated[
        list[str] | None, typer.Option(help="only flows into these clusters; run one mirror next to each target")
    ] = None,
    metrics: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="serve Prometheus metrics")] = None,
) -> None:
    """Mirror in the foreground until SIGTERM."""
    _configure_log()
    config = load(file)
    targets = [name for item in clusters for name in item.split(",")] if clusters else None
    unknown = sorted(set(targets or ()) - set(config.clusters))
    if unknown:
        _give_up(f"--clusters {','.join(unknown)}: {file} names {', '.join(config.clusters)}")
    if not config.enabled_flows(targets):
        _give_up(f"{file}: no flow is enabled; add a line such as `A->B.enabled = true`")
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    problem = asyncio.run(_run(config, targets, metrics))
    if problem:
        _give_up(problem)
    print("tidemill mirror stopped", flush=True)


@app.command()
def status(file: FileArgument) -> None:
    """Show how far every partition is; works whether or not a mirror is running."""
    _configure_log()
    rows = asyncio.run(_collect(load(file), lambda inspector: inspector.status()))
    table = Table("flow", "source", "target", "source end", "target end", "state", box=None, header_style="bold")
    for row in rows:
        table.add_row(row.flow, str(row.source), str(row.target), str(row.source_end), str(row.target_end), row.verdict)
    Console().print(table)
    lag = sum(row.lag or 0 for row in rows)
    problems = sum(bool(row.problem) for row in rows)
    print(json.dumps({"partitions": len(rows), "lag": lag, "problems": problems}))
    if problems:
        raise typer.Exit(1)


@app.command()
def verify(file: FileArgument) -> None:
    """Compare every copy with its source, record by record where checksums cannot tell; exits 1 on a difference."""
    _configure_log()
    rows = asyncio.run(_collect(load(file), lambda inspector: inspector.verify()))
    for row in rows:
        behind = f", {row.behind} offsets not mirrored yet" if row.behind else ""
        print(f"{row.flow} {row.source}: {'EQUAL' if row.equal else 'DIFFERENT'}, {row.records} records{behind}")
        if row.problem:
            print(f"  {row.problem}")
    equal = all(row.equal for row in rows)
    records = sum(row.records for row in rows)
    print(json.dumps({"equal": equal, "partitions": len(rows), "records": records}))
    if not equal:
        raise typer.Exit(1)


async def _collect(config: MirrorConfig, ask: Callable[[FlowInspector], AsyncIterator[RowT]]) -> list[RowT]:
    rows: list[RowT] = []
    for flow in config.enabled_flows():
        inspector = FlowInspector(config, flow)
        try:
            rows.extend([row async for row in ask(inspector)])
        except (ConnectionFailed, KafkaError) as error:
            _give_up(f"{flow.name}: {error}")
        finally:
            inspector.close()
    return rows


async def _run(config: MirrorConfig, targets: list[str] | None, metrics: str | None) -> str:
    """Run until a signal; returns what went wrong, empty if nothing."""
    runner = MirrorRunner(config, targets=targets)
    if metrics:
        host, _, port = metrics.rpartition(":")
        registry = CollectorRegistry()
        registry.register(FlowCollector(runner.flows))
        start_http_server(int(port), addr=host or "127.0.0.1", registry=registry)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    found: list[BaseException] = []
    try:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(runner.run(lambda: _announce(runner)))
            await stop.wait()
            work.cancel()
    except* (Fenced, Preflight) as problems:
        found = _leaves(problems)
    return "; ".join(map(str, found))


def _announce(runner: MirrorRunner) -> None:
    flows = ", ".join(
        f"{flow.config.name} ({len({partition.topic for partition in flow.entries})} topics, "
        f"{len(flow.entries)} partitions)"
        for flow in runner.flows
    )
    print(f"tidemill mirror ready: {flows}", flush=True)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found


def load(file: Path) -> MirrorConfig:
    """Read the settings or end the program with every problem, one a line."""
    try:
        return parse_mirror_config(parse_config_text(file.read_text(), file.name))
    except OSError as error:
        _give_up(f"cannot read {file}: {error.strerror}")
    except ConfigError as error:
        _give_up("\n".join(f"{file}: {problem}" for problem in error.problems))


def _give_up(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise typer.Exit(2)


def _configure_log() -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
