"""`tidemill connect`: run a Connect worker in the foreground

Settings come from the file, then from environment variables (`TIDEMILL_CONNECT_GROUP_ID=…`, see
`tidemill.core.environment`), then from `--set`, `--bootstrap-server` and `--rest`; the last one wins. Where none of
them names a cluster, `TIDEMILL_BOOTSTRAP` does. The readiness line on standard output says where the REST API answers;
everything else goes to standard error. SIGTERM and Ctrl-C stop the worker in order: no new requests, every task
stopped and its offsets stored, statuses written.

Exit status: 0 after a stop, 1 when the worker could not start or lost its topics, 2 for settings that cannot be used.
"""

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import structlog
import typer

from tidemill.connect.config import WORKER, Address, WorkerConfig, known_names, parse_worker
from tidemill.connect.loggers import configure_levels
from tidemill.core import environment
from tidemill.core.config import ConfigError
from tidemill.core.runtime.main_loop import run_process

log = structlog.get_logger("tidemill.connect.cli")

ENVIRONMENT_PREFIX = "TIDEMILL_CONNECT_"
NOT_SETTINGS = ("URL",)  # TIDEMILL_CONNECT_URL tells `tidemill connector` where a worker answers
CLUSTER_VARIABLE = "TIDEMILL_BOOTSTRAP"  # what every command reads; here a file may say more

app = typer.Typer(help="Run a Kafka Connect worker.", no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """Run a Kafka Connect worker."""


File = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A connect-distributed.properties or .toml file.")
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        help="The Kafka cluster; also TIDEMILL_BOOTSTRAP.",
    ),
]
Rest = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Address of the REST API; port 0 takes a free one.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, as in the file; repeatable.")
]


@app.command()
def start(
    config: File = None,
    bootstrap: Bootstrap = None,
    rest: Rest = None,
    settings: Settings = None,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How log lines look.")] = "text",
    log_level: Annotated[str, typer.Option(metavar="debug|info|warning|error", help="What is logged.")] = "info",
) -> None:
    """Run one worker until it is told to stop."""
    try:
        configure_levels(log_format, log_level)
        parsed = parse_worker(gather(config, os.environ, settings or (), bootstrap, rest))
    except (ConfigError, ValueError) as error:
        _refuse(error)
    raise typer.Exit(run(parsed))


@app.command(name="config")
def show_config(
    config: File = None,
    bootstrap: Bootstrap = None,
    rest: Rest = None,
    settings: Settings = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Every setting with its type, default and meaning, as Markdown.")
    ] = False,
) -> None:
    """Print every setting as it takes effect, with what is given here, in the file and in the environment."""
    if reference:
        typer.echo(WORKER.markdown())
        return
    try:
        raw = gather(config, os.environ, settings or (), bootstrap, rest)
        parse_worker(raw)
        typer.echo(WORKER.properties(raw))
    except (ConfigError, ValueError) as error:
        _refuse(error)


def _refuse(error: ValueError) -> NoReturn:
    for problem in error.problems if isinstance(error, ConfigError) else (str(error),):
        typer.echo(f"tidemill connect: {problem}", err=True)
    raise typer.Exit(2) from None


def gather(
    file: Path | None,
    environ: Mapping[str, str],
    settings: Sequence[str],
    bootstrap: str | None,
    rest: str | None,
) -> dict[str, str]:
    """All settings given, the strongest winning; raises ConfigError."""
    raw = environment.gather(file, environ, ENVIRONMENT_PREFIX, known_names, settings, not_settings=NOT_SETTINGS)
    if bootstrap is not None:
        raw["bootstrap.servers"] = bootstrap
    if rest is not None:
        try:
            host, port = Address.parse(rest)
        except ValueError as error:
            raise ConfigError([f"--rest: {error}"]) from None
        raw["listeners"] = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if CLUSTER_VARIABLE in environ:
        raw.setdefault("bootstrap.servers", environ[CLUSTER_VARIABLE])
    return raw


def run(config: WorkerConfig) -> int:
    """Serve until stopped; returns the exit status."""
    return run_process(_serve(config))


async def _serve(config: WorkerConfig) -> int:
    from tidemill.connect.group.seat import GroupRefused
    from tidemill.connect.topic_log import TopicLogError
    from tidemill.connect.worker import StartRefused

    status = 0
    stop, ready = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with asyncio.TaskGroup() as tasks:
            worker = tasks.create_task(_work(config, stop, ready), name="worker")
            stopper = tasks.create_task(stop.wait(), name="stop signal")
            await asyncio.wait([worker, stopper], return_when=asyncio.FIRST_COMPLETED)
            stopper.cancel()
            if not ready.is_set():
                worker.cancel()  # stopped while it was still starting
    except* (StartRefused, GroupRefused, TopicLogError) as group:
        for reason in sorted({str(error) for error in _leaves(group)}):
            typer.echo(f"tidemill connect: {reason}", err=True)
        status = 1
    return status


async def _work(config: WorkerConfig, stop: asyncio.Event, ready: asyncio.Event) -> None:
    from tidemill.connect.worker import open_worker

    async with open_worker(config) as worker:
        ready.set()
        print(
            f"tidemill connect ready: REST {worker.url}, group {worker.group_id}, cluster {worker.cluster_id}",
            flush=True,
        )
        await stop.wait()
        log.info("stopping")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error
