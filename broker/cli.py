"""`tidemill broker`: run a broker in the foreground

Settings come from the file, then from environment variables (`TIDEMILL_BROKER_NUM_PARTITIONS=3`), then from `--set`,
`--data` and `--listen`; the last one wins. The readiness line on standard output says where clients connect;
everything else goes to standard error. SIGTERM and Ctrl-C stop the broker in order: no new requests, answers for
those in work, all files closed and marked clean.

Exit status: 0 after a stop, 1 when the data folder failed or the broker could not start, 2 for settings that cannot
be used.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import structlog
import typer

from broker.config import BROKER_CONFIG, BrokerConfig, ignored_keys, parse_address
from core.config import ConfigError, environment_overrides, parse_assignments, parse_config_text
from core.runtime.log_lines import configure_log

log = structlog.get_logger("tidemill.broker.cli")

ENVIRONMENT_PREFIX = "TIDEMILL_BROKER_"

app = typer.Typer(help="Run a Kafka-protocol broker.", no_args_is_help=True, add_completion=False)


@app.command()
def start(
    config: Annotated[Path | None, typer.Option(help="A server.properties or .toml file.")] = None,
    data: Annotated[str | None, typer.Option(help="Folder of all data (log.dirs).")] = None,
    listen: Annotated[str | None, typer.Option(help="HOST:PORT to accept clients on; port 0 takes a free one.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value, as in server.properties.")] = None,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run one broker until it is told to stop."""
    try:
        configure_log(log_format, log_level)
        raw = gather(config, os.environ, settings or (), data, listen)
        parsed = BrokerConfig.parse(raw)
    except (ConfigError, ValueError) as error:
        for problem in error.problems if isinstance(error, ConfigError) else (str(error),):
            typer.echo(f"tidemill broker: {problem}", err=True)
        raise typer.Exit(2) from None
    for name, reason in ignored_keys(raw).items():
        log.info("setting has no effect", key=name, reason=reason)
    raise typer.Exit(run(parsed))


@app.command(name="config")
def show_config() -> None:
    """Print every setting with its default and meaning."""
    typer.echo(BROKER_CONFIG.markdown())


def gather(
    file: Path | None,
    environ: "os._Environ[str] | dict[str, str]",
    settings: "list[str] | tuple[str, ...]",
    data: str | None,
    listen: str | None,
) -> dict[str, str]:
    """All settings given, the strongest winning; raises ConfigError."""
    raw: dict[str, str] = {}
    if file is not None:
        try:
            raw |= parse_config_text(file.read_text(), file.name)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError([f"cannot read {file}: {reason}"]) from None
    raw |= environment_overrides(environ, ENVIRONMENT_PREFIX, BROKER_CONFIG)
    raw |= parse_assignments(settings)
    if data is not None:
        raw["log.dirs"] = data
    if listen is not None:
        host, port = parse_address(listen)
        raw["listeners"] = f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"
        raw.pop("controller.listener.names", None)
        told = [entry.strip() for entry in raw.pop("advertised.listeners", "").split(",")]
        if kept := [entry for entry in told if entry.upper().startswith("PLAINTEXT://")]:
            raw["advertised.listeners"] = ",".join(kept)
    return raw


def run(config: BrokerConfig) -> int:
    """Serve until stopped; returns the exit status."""
    from broker.log.identity import FolderRefused
    from broker.node import StartRefused

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(config))
    except (StartRefused, FolderRefused, ConfigError) as error:
        typer.echo(f"tidemill broker: {error}", err=True)
        return 1


def _loop_factory() -> "type[asyncio.AbstractEventLoop]":
    import uvloop

    return uvloop.Loop


async def _serve(config: BrokerConfig) -> int:
    from broker.node import open_broker

    async with open_broker(config) as broker:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, broker.stop.set)
        host = f"[{broker.host}]" if ":" in broker.host else broker.host or "0.0.0.0"
        print(
            f"tidemill broker ready: listening on {host}:{broker.port}, node {broker.node_id}, "
            f"cluster {broker.cluster_id}, data {config.data_dir}",
            flush=True,
        )
        await broker.stop.wait()
        failure = broker.failure
        log.info("broker stops", reason=str(failure) if failure else "told to")
    if failure is not None:
        print(
            f"tidemill broker: the data folder {config.data_dir} failed ({failure}): repair the disk and start again",
            file=sys.stderr,
        )
        return 1
    return 0
