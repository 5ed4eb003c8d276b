"""`tidemill spark`: the warehouse job as a program

Settings come from FILE, then from environment variables (`TIDEMILL_SPARK_TABLE_PATH=…`, see
`tidemill.core.environment`), then from `--set`; the last one wins, and FILE may be left out.

Runs in the foreground. Standard output gets one line when the job reads; progress and the log go to standard error.
On a cluster, `spark-submit --master … spark_sink/cli.py run FILE` runs the same job; driver and executors need this
package installed (an image, or a packed environment by `--archives`), and `table.path` and `checkpoint.location` a
place that all of them reach. `spark.master` of the file is then not looked at.

`SIGTERM` and `SIGINT` stop it after the commit at hand. Exit status: 0 stopped or done, 1 failed and may be started
again, 2 the file is wrong, 3 somebody has to decide something; the last line says what.
"""

import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import structlog
import typer

from tidemill.spark_sink.config import JOB_TABLE, JobConfig, known_names, parse_job
from tidemill.spark_sink.core_api import ConfigError, ProbeServer, gather, origin, parse_address
from tidemill.spark_sink.lifeline import ParentGone, die_with_parent

if TYPE_CHECKING:
    from tidemill.spark_sink.job import WarehouseJob
    from tidemill.spark_sink.preflight import Finding

app = typer.Typer(help="Keep a warehouse table equal to a topic.", no_args_is_help=True, add_completion=False)

ENVIRONMENT_PREFIX = "TIDEMILL_SPARK_"
EXIT_FAILED, EXIT_WRONG_FILE = 1, 2
WATCHED = "tidemill spark watched at:"
PACKAGES = ("pyspark", "pandas", "pyarrow", "deltalake")  # what the extras lake and spark bring


@app.callback()
def _group() -> None:
    """Keep a warehouse table equal to a topic."""


JobFile = Annotated[Path | None, typer.Argument(help="Settings: .properties or .toml.", show_default=False)]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, as in the file; repeatable.")
]


@app.command()
def run(
    file: JobFile = None,
    settings: Settings = None,
    parent: Annotated[int | None, typer.Option(help="End when this parent process ends.", hidden=True)] = None,
) -> None:
    """Run a job until it is told to stop."""
    leave(run_file(file, parent, settings or ()))


@app.command()
def check(
    file: JobFile = None,
    settings: Settings = None,
    offline: Annotated[bool, typer.Option("--offline", help="Leave cluster, topics and tables alone.")] = False,
) -> None:
    """Say whether a job could work here, and what it finds: settings, Java, cluster, topics, tables.

    Exit status: 0 all is well, 1 something is not there (now), 2 the file is wrong.
    """
    problems = check_file(file, settings or ())
    for problem in problems:
        _tell(f"tidemill spark: {problem}")
    if problems:
        leave(EXIT_WRONG_FILE)
    typer.echo(f"settings  {_origin(file)}")
    bad = [] if offline else [finding for finding in _findings(load(file, settings or ())) if not _show(finding)]
    leave(EXIT_FAILED if bad else 0)


def _findings(config: JobConfig) -> "Iterator[Finding]":
    from tidemill.spark_sink.preflight import findings_of

    return findings_of(config)


def _show(finding: "Finding") -> bool:
    if finding.good:
        typer.echo(f"{finding.what:<8}  {finding.text}")
    else:
        _tell(f"tidemill spark: {finding.text}")
    return finding.good


@app.command(name="settings")
def show_settings() -> None:
    """Print every setting of a job file."""
    typer.echo(JOB_TABLE.markdown())


def run_file(file: Path | None, parent: int | None = None, settings: Sequence[str] = ()) -> int:
    """Run the job that a file, the environment and `settings` describe; returns the exit status."""
    if parent is not None:
        try:
            die_with_parent(parent)
        except ParentGone as error:
            _tell(f"tidemill spark: {error}")
            return EXIT_FAILED
    problems = check_file(file, settings)
    if problems:
        for problem in problems:
            _tell(f"tidemill spark: {problem}")
        return EXIT_WRONG_FILE
    config = load(file, settings)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # its traces for a JVM that died say nothing we do not say
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    from tidemill.spark_sink.job import WarehouseJob

    job = WarehouseJob(config, say=typer.echo, tell=_tell)
    if config.metrics_listener and not _serve(config.metrics_listener, job):
        return EXIT_WRONG_FILE
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: job.stop())
    return job.run()


def _serve(listener: str, job: "WarehouseJob") -> bool:
    """Answer those who watch the job, for as long as the process lives; False when that is not possible there."""
    from tidemill.spark_sink.watching import Watched, probe_of

    host, port = parse_address(listener)
    try:
        probe = probe_of(Watched(figures=job.figures, report=job.report, pulse=job.pulse))
        server = ProbeServer(host or "127.0.0.1", port, probe).start()
    except OSError as error:
        _tell(f"tidemill spark: metrics.listener {listener}: {error.strerror or error}; choose another address")
        return False
    _tell(f"{WATCHED} http://{f'[{host}]' if ':' in host else host or '127.0.0.1'}:{server.port}")
    return True


def check_file(file: Path | None, settings: Sequence[str] = ()) -> list[str]:
    """What stands in the way of a job, a sentence each."""
    try:
        config = load(file, settings)
    except ConfigError as error:
        return list(error.problems)
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return [f"the Python package {missing[0]} is missing: pip install 'tidemill[lake,spark]'"]
    from tidemill.spark_sink.preflight import problems_of

    return problems_of(config)


def load(file: Path | None, settings: Sequence[str] = ()) -> JobConfig:
    """Read a job's settings; raises ConfigError."""
    raw = gather(file, os.environ, ENVIRONMENT_PREFIX, known_names, settings)
    try:
        return parse_job(raw)
    except ConfigError as error:
        raise ConfigError([f"{_origin(file)}: {problem}" for problem in error.problems]) from None


def _origin(file: Path | None) -> str:
    return origin(file, os.environ, ENVIRONMENT_PREFIX)


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def leave(status: int) -> NoReturn:
    """End the process at once: the threads of delta-rs and Arrow may abort an orderly interpreter exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    app()
