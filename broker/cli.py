"""`tidemill broker`: run a broker in the foreground

Settings come from the file, then from environment variables (`TIDEMILL_BROKER_NUM_PARTITIONS=3`, see
`tidemill.core.environment`), then from `--set`, `--data` and `--listen`; the last one wins. The readiness line on
standard output says where clients connect; everything else goes to standard error. SIGTERM and Ctrl-C stop the broker
in order: no new requests, answers for those in work, all files closed and marked clean.

Exit status: 0 after a stop, 1 when the data folder failed or the broker could not start, 2 for settings that cannot
be used.
"""

import argparse
import asyncio
import gc
import os
import signal
import sys
from pathlib import Path

import structlog

from tidemill.broker.config import BROKER_CONFIG, BrokerConfig, ignored_keys, known_names
from tidemill.core import environment
from tidemill.core.config import ConfigError, Value, parse_address
from tidemill.core.ids import encode_id
from tidemill.core.runtime.log_lines import configure_log

log = structlog.get_logger("tidemill.broker.cli")

ENVIRONMENT_PREFIX = "TIDEMILL_BROKER_"


_FORMAT_MORE = (
    " The settings have controller.quorum.bootstrap.servers and no controller.quorum.voters. Nodes that come later are "
    "started as they are; 'tidemill cluster add-voter' makes controllers of them. A folder that was lost is not made "
    "again by the list that it was in: the others would take it for the voter that it was."
)


def _command_line() -> argparse.ArgumentParser:
    """What `tidemill broker` understands: argparse, because a broker keeps in memory what its command line imported."""
    parser = argparse.ArgumentParser("tidemill broker", description="Run a Kafka-protocol broker.", allow_abbrev=False)
    parser.set_defaults(run=_show_help)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    text = "Run one broker until it is told to stop."
    command = commands.add_parser("start", help=text, description=text, allow_abbrev=False)
    command.set_defaults(run=start)
    _add_settings(command)
    add = command.add_argument
    add("--log-format", metavar="FORMAT", default="text", help="text or json. [default: text]")
    add("--log-level", metavar="LEVEL", default="info", help="debug, info, warning or error. [default: info]")
    text = "Make the folder of one of a cluster's first controllers, where these may change while they run."
    command = commands.add_parser("format", help=text, description=text + _FORMAT_MORE, allow_abbrev=False)
    command.set_defaults(run=format_new)
    _add_settings(command)
    first = command.add_mutually_exclusive_group(required=True)
    first.add_argument("--standalone", action="store_true", help="This node is the first controller, and the only one.")
    first.add_argument(
        "--initial-controllers",
        metavar="LIST",
        default="",
        help="ID@HOST:PORT:DIRECTORY of each that begins, with commas between; the same on all of them.",
    )
    text = "Print every setting as it takes effect, with what is given here, in the file and in the environment."
    command = commands.add_parser("config", help=text, description=text, allow_abbrev=False)
    command.set_defaults(run=show_config)
    _add_settings(command)
    command.add_argument(
        "--reference", action="store_true", help="Every setting with its type, default and meaning, as Markdown."
    )
    return parser


def _add_settings(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--config", metavar="FILE", type=Path, help="A server.properties or .toml file.")
    add("--data", metavar="FOLDER", help="Folder of all data (log.dirs).")
    add(
        "--listen",
        metavar="HOST:PORT",
        help="HOST:PORT to accept clients on, not encrypted, instead of listeners; 0 is a free port.",
    )
    add("--set", metavar="KEY=VALUE", action="append", dest="settings", help="key=value, as in server.properties.")


def start(options: argparse.Namespace) -> int:
    """Run one broker until it is told to stop; returns the exit status."""
    try:
        configure_log(options.log_format, options.log_level)
        raw = _gathered(options)
        parsed = BrokerConfig.parse(raw)
    except (ConfigError, ValueError) as error:
        return _refused(error)
    for name, reason in ignored_keys(raw).items():
        log.info("setting has no effect", key=name, reason=reason)
    return run(parsed)


def format_new(options: argparse.Namespace) -> int:
    """Write a new folder's first voters; returns the exit status."""
    from tidemill.broker.formatting import format_folder
    from tidemill.broker.log.identity import FolderRefused
    from tidemill.broker.opening import StartRefused

    try:
        config = BrokerConfig.parse(_gathered(options))
        done = format_folder(config, options.initial_controllers)
    except (ConfigError, ValueError) as error:
        return _refused(error)
    except (StartRefused, FolderRefused) as error:
        print(f"tidemill broker: {error}", file=sys.stderr)
        return 1
    print(
        f"formatted {config.data_dir}: node {config.node_id} of cluster {done.cluster_id}, directory "
        f"{encode_id(done.directory_id)}, voters {', '.join(map(str, done.voters.ids))}"
    )
    return 0


def show_config(options: argparse.Namespace) -> int:
    """Print every setting as it takes effect, or the reference; returns the exit status."""
    if options.reference:
        print(BROKER_CONFIG.markdown())
        return 0
    try:
        config = BrokerConfig.parse(_gathered(options))
    except (ConfigError, ValueError) as error:
        return _refused(error)
    print(BROKER_CONFIG.properties(config.static, {**config.spread, **_of_new_topics(config)}))
    return 0


def _of_new_topics(config: BrokerConfig) -> dict[str, Value]:
    """What a new topic of the default number of replicas gets as a setting of its own, as nobody has said otherwise."""
    from tidemill.broker.quorum.rules import MIN_IN_SYNC_KEY, Rules

    rules = Rules(min_insync_replicas=None)  # one that is given is shown as it is
    text = rules.min_in_sync_of_new({}, {}, config.default_replication_factor)
    return {} if text is None else {MIN_IN_SYNC_KEY: int(text)}


def _gathered(options: argparse.Namespace) -> dict[str, str]:
    return gather(options.config, os.environ, options.settings or (), options.data, options.listen)


def _refused(error: ValueError) -> int:
    for problem in error.problems if isinstance(error, ConfigError) else (str(error),):
        print(f"tidemill broker: {problem}", file=sys.stderr)
    return 2


def _show_help(_options: argparse.Namespace) -> int:
    app.print_help()
    return 2


def gather(
    file: Path | None,
    environ: "os._Environ[str] | dict[str, str]",
    settings: "list[str] | tuple[str, ...]",
    data: str | None,
    listen: str | None,
) -> dict[str, str]:
    """All settings given, the strongest winning; raises ConfigError."""
    raw = environment.gather(file, environ, ENVIRONMENT_PREFIX, known_names, settings)
    if data is not None:
        raw["log.dirs"] = data
    if listen is not None:
        if "://" in listen:
            raise ConfigError([f"--listen takes HOST:PORT, not {listen!r}: try --set listeners={listen}"])
        host, port = parse_address(listen)
        raw["listeners"] = f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{port}"
        raw.pop("controller.listener.names", None)
        told = [entry.strip() for entry in raw.pop("advertised.listeners", "").split(",")]
        if kept := [entry for entry in told if entry.upper().startswith("PLAINTEXT://")]:
            raw["advertised.listeners"] = ",".join(kept)
    return raw


def run(config: BrokerConfig) -> int:
    """Serve until stopped; returns the exit status."""
    # What a start makes stays, imports to begin with: going over it again and again takes an eighth of the time that
    # those need, and with 10,000 topics 0.7 s of 2.3 s.
    gc.disable()
    from tidemill.broker.log.identity import FolderRefused
    from tidemill.broker.node import StartRefused

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(config))
    except (StartRefused, FolderRefused, ConfigError) as error:
        print(f"tidemill broker: {error}", file=sys.stderr)
        return 1
    finally:
        gc.enable()


def _loop_factory() -> "type[asyncio.AbstractEventLoop]":
    import uvloop

    return uvloop.Loop


async def _serve(config: BrokerConfig) -> int:
    from tidemill.broker.first_routes import load_later
    from tidemill.broker.node import open_broker

    async with open_broker(config) as broker:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, broker.stop.set)
        host = f"[{broker.host}]" if ":" in broker.host else broker.host or "0.0.0.0"
        role = "broker" if config.listen else "controller"
        print(
            f"tidemill {role} ready: listening on {host}:{broker.port}, node {broker.node_id}, "
            f"cluster {broker.cluster_id}, data {config.data_dir}",
            flush=True,
        )
        await asyncio.to_thread(load_later)  # the rest of the code, while clients are served
        gc.enable()
        gc.freeze()  # what is here now stays; going over it would make every client wait 10 ms, again and again
        await broker.stop.wait()
        failure = broker.failure
        driven_out = "" if broker.place is None else broker.place.driven_out
        log.info("broker stops", reason=str(failure or driven_out or "told to"))
    if failure is not None:
        print(
            f"tidemill broker: the data folder {config.data_dir} failed ({failure}): repair the disk and start again",
            file=sys.stderr,
        )
        return 1
    if driven_out:
        print(f"tidemill broker: {driven_out}", file=sys.stderr)
        return 1
    return 0


app = _command_line()
"""The entry point of `tidemill broker`."""
