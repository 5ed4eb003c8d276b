"""`tidemill spark`: the warehouse job as a program

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
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import structlog
import typer

from tidemill.spark_sink.config import JOB_TABLE, JobConfig, parse_job
from tidemill.spark_sink.core_api import ConfigError, parse_config_text
from tidemill.spark_sink.lifeline import ParentGone, die_with_parent

if TYPE_CHECKING:
    from tidemill.spark_sink.preflight import Finding

app = typer.Typer(help="Keep a warehouse table equal to a topic.", no_args_is_help=True, add_completion=False)

EXIT_FAILED, EXIT_WRONG_FILE = 1, 2
PACKAGES = ("pyspark", "pandas", "pyarrow", "deltalake")  # what the extras lake and spark bring


@app.callback()
def _group() -> None:
    """Keep a warehouse table equal to a topic."""


JobFile = Annotated[Path, typer.Argument(help="Settings: .properties or .toml.", show_default=False)]


@app.command()
def run(
    file: JobFile,
    parent: Annotated[int | None, typer.Option(help="End when this parent process ends.", hidden=True)] = None,
) -> None:
    """Run a job until it is told to stop."""
    leave(run_file(file, parent))


@app.command()
def check(
    file: JobFile,
    offline: Annotated[bool, typer.Option("--offline", help="Leave cluster, topics and tables alone.")] = False,
) -> None:
    """Say whether a job could work here, and what it finds: settings, Java, cluster, topics, tables.

    Exit status: 0 all is well, 1 something is not there (now), 2 the file is wrong.
    """
    problems = check_file(file)
    for problem in problems:
        _tell(f"tidemill spark: {problem}")
    if problems:
        leave(EXIT_WRONG_FILE)
    typer.echo(f"settings  {file}")
    bad = [] if offline else [finding for finding in _findings(file) if not _show(finding)]
    leave(EXIT_FAILED if bad else 0)


def _findings(file: Path) -> "Iterator[Finding]":
    from tidemill.spark_sink.preflight import findings_of

    return findings_of(load(file))


def _show(finding: "Finding") -> bool:
    if finding.good:
        typer.echo(f"{finding.what:<8}  {finding.text}")
    else:
        _tell(f"tidemill spark: {finding.text}")
    return finding.good


@app.command()
def settings() -> None:
    """Print every setting of a job file."""
    typer.echo(JOB_TABLE.markdown())


def run_file(file: Path, parent: int | None = None) -> int:
    """Run the job a file describes; returns the exit status."""
    if parent is not None:
        try:
            die_with_parent(parent)
        except ParentGone as error:
            _tell(f"tidemill spark: {error}")
            return EXIT_FAILED
    problems = check_file(file)
    if problems:
        for problem in problems:
            _tell(f"tidemill spark: {problem}")
        return EXIT_WRONG_FILE
    config = load(file)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # its traces for a JVM that died say nothing we do not say
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    from tidemill.spark_sink.job import WarehouseJob

    job = WarehouseJob(config, say=typer.echo, tell=_tell)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: job.stop())
    return job.run()


def check_file(file: Path) -> list[str]:
    """What stands in the way of a job, a sentence each."""
    try:
        config = load(file)
    except ConfigError as error:
        return [f"{file}: {problem}" for problem in error.problems]
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return [f"the Python package {missing[0]} is missing: pip install 'tidemill[lake,spark]'"]
    from tidemill.spark_sink.preflight import problems_of

    return problems_of(config)


def load(file: Path) -> JobConfig:
    """Read a job file; raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"cannot be read: {getattr(error, 'strerror', None) or error}"]) from None
    return parse_job(parse_config_text(text, file.name))


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def leave(status: int) -> NoReturn:
    """End the process at once: the threads of delta-rs and Arrow may abort an orderly interpreter exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    app()
