"""`tidemill mirror`: run the flows of an mm2.properties file

Settings come from FILE, then from environment variables (`TIDEMILL_MIRROR_EAST__WEST_ENABLED=true`, see
`tidemill.core.environment`), then from `--set`; the last one wins, and FILE may be left out.

`start` runs in the foreground until SIGTERM or SIGINT. Standard output gets one readiness line, and one line when it
ends; everything else is the log on standard error. The other commands look from outside and disturb nothing.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from tidemill.core import environment
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.security import dialer_of
from tidemill.core.config import ConfigError, parse_address
from tidemill.core.errors import KafkaError
from tidemill.core.runtime.clock import SystemClock
from tidemill.core.runtime.log_lines import configure_log
from tidemill.core.runtime.main_loop import run_process
from tidemill.core.runtime.probe import Probe, ProbeServer
from tidemill.mirror.config import FlowConfig, MirrorConfig, known_names, parse_mirror_config
from tidemill.mirror.effective import effective_settings
from tidemill.mirror.flow import Preflight
from tidemill.mirror.inspection import FlowInspector, FlowReport
from tidemill.mirror.map_store import Fenced
from tidemill.mirror.reporting import lines_of, standing_of, summary
from tidemill.mirror.runner import MirrorRunner
from tidemill.mirror.watching import probe_of

RowT = TypeVar("RowT")
ENVIRONMENT_PREFIX = "TIDEMILL_MIRROR_"
BACKSLASH = "\\"  # escapes itself in a .properties file
GIVEN_UP = 2  # exit status of a mirror that cannot go on

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Mirror topics and consumer groups between clusters."
)

FileArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="settings as for MirrorMaker 2 (mm2.properties)", show_default=False),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, as in the file; repeatable.")
]


@app.callback()
def mirror() -> None:
    """Mirror topics and consumer groups between clusters."""


@app.command()
def start(
    file: FileArgument = None,
    settings: Settings = None,
    clusters: Annotated[
        list[str] | None, typer.Option(help="only flows into these clusters; run one mirror next to each target")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="serve /metrics, /health/live and /health/ready")
    ] = None,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How log lines look.")] = "text",
    log_level: Annotated[str, typer.Option(metavar="debug|info|warning|error", help="What is logged.")] = "info",
) -> None:
    """Mirror in the foreground until SIGTERM."""
    try:
        configure_log(log_format, log_level)
    except ValueError as error:
        _give_up(str(error))
    config = load(file, settings)
    targets = [name for item in clusters for name in item.split(",")] if clusters else None
    unknown = sorted(set(targets or ()) - set(config.clusters))
    if unknown:
        _give_up(f"--clusters {','.join(unknown)}: {_origin(file)} names {', '.join(config.clusters)}")
    if not config.enabled_flows(targets):
        _give_up(f"{_origin(file)}: no flow is enabled; add a line such as `A->B.enabled = true`")
    raise typer.Exit(run_process(_run(config, targets, metrics)))


@app.command(name="config")
def show_config(file: FileArgument = None, settings: Settings = None) -> None:
    """Print every setting that takes effect, with where its value comes from; the output can be used as a file."""
    raw = _read(file, settings)
    config = _parsed(file, raw)
    for row in effective_settings(raw):
        origin = "default" if row.given_as is None else f"given as {row.given_as}" if row.given_as != row.name else ""
        if origin:
            print(f"# {origin}")
        print(f"{row.name} = {row.value.replace(BACKSLASH, 2 * BACKSLASH)}")
    for key in config.without_effect:
        print(f"# accepted, changes nothing: {key}")


@app.command()
def status(file: FileArgument = None, settings: Settings = None) -> None:
    """Show whether a mirror runs, what is wrong since when and what to do, and how far every partition is.

    Exits 0 when all is well, 1 when something is wrong, 2 when FILE is, 3 when nothing is but no mirror runs. The last
    line is JSON.
    """
    configure_log(level="warning")
    reports = asyncio.run(_reports(load(file, settings)))
    now_ms = SystemClock().now_ms()
    for report in reports:
        for line in lines_of(report, now_ms):
            print(line)
    table = Table("flow", "source", "target", "source end", "target end", "state", box=None, header_style="bold")
    for report in reports:
        for row in report.partitions:
            state, ends = standing_of(report, row), (str(row.source_end), str(row.target_end))
            table.add_row(row.flow, str(row.source), str(row.target), *ends, state)
    if table.row_count:
        Console().print(table)
    found = summary(reports, now_ms)
    print(json.dumps(asdict(found)))
    raise typer.Exit(found.exit_status)


async def _reports(config: MirrorConfig) -> list[FlowReport]:
    async def ask(flow: FlowConfig) -> FlowReport:
        inspector = FlowInspector(config, flow)
        try:
            return await inspector.report()
        finally:
            inspector.close()

    return await asyncio.gather(*map(ask, config.enabled_flows()))


@app.command()
def verify(file: FileArgument = None, settings: Settings = None) -> None:
    """Compare every copy with its source, record by record where checksums cannot tell; exits 1 on a difference."""
    configure_log(level="warning")
    rows = asyncio.run(_collect(load(file, settings), lambda inspector: inspector.verify()))
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


async def _run(config: MirrorConfig, targets: list[str] | None, metrics: str | None) -> int:
    """Run until a signal; returns the exit status."""
    runner = MirrorRunner(config, targets=targets)
    stop, started = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    found: list[BaseException] = []
    server = _watched(metrics, probe_of(loop, runner.health, started.is_set)) if metrics else None
    try:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(runner.run(lambda: _announce(runner, started)))
            await stop.wait()
            work.cancel()
    except* (Fenced, Preflight) as problems:
        found = _leaves(problems)
    if server is not None:
        await asyncio.to_thread(server.close)  # it may be waiting for this loop's answer
    if found:
        _complain("; ".join(map(str, found)))
        return GIVEN_UP
    print("tidemill mirror stopped", flush=True)
    return 0


def _watched(address: str, probe: Probe) -> ProbeServer:
    """Serve what is told to those who watch, at HOST:PORT."""
    try:
        host, port = parse_address(address)
    except ConfigError:
        _give_up(f"--metrics {address}: expected HOST:PORT")
    try:
        return ProbeServer(host or "127.0.0.1", port, probe).start()
    except OSError as error:
        _give_up(f"--metrics {address}: {error.strerror or error}; choose another address")


def _announce(runner: MirrorRunner, started: asyncio.Event) -> None:
    started.set()
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


def load(file: Path | None, settings: Sequence[str] | None = None) -> MirrorConfig:
    """Read the settings or end the program with every problem, one a line."""
    return _parsed(file, _read(file, settings))


def _read(file: Path | None, settings: Sequence[str] | None) -> Mapping[str, str]:
    try:
        return environment.gather(file, os.environ, ENVIRONMENT_PREFIX, known_names, settings or ())
    except ConfigError as error:
        _give_up(*error.problems)


def _parsed(file: Path | None, raw: Mapping[str, str]) -> MirrorConfig:
    try:
        config = parse_mirror_config(raw)
        for cluster in config.clusters.values():
            dialer_of(cluster.security)  # files that cannot be used are mistakes like any other
        return config
    except ConfigError as error:
        _give_up(*(f"{_origin(file)}: {problem}" for problem in error.problems))


def _origin(file: Path | None) -> str:
    return environment.origin(file, os.environ, ENVIRONMENT_PREFIX)


def _give_up(*problems: str) -> NoReturn:
    _complain(*problems)
    raise typer.Exit(GIVEN_UP)


def _complain(*problems: str) -> None:
    for problem in problems:
        print(f"tidemill mirror: {problem}", file=sys.stderr)
