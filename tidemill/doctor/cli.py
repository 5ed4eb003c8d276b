"""`tidemill doctor`: check machine and cluster, and say what to fix

Exit status: 0 nothing fails (warnings are printed), 1 something does, 2 wrong usage.
"""

import asyncio
import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tidemill.bootstrap import read_command_config
from tidemill.core.client.security import dialer_of
from tidemill.core.runtime.clock import SystemClock
from tidemill.doctor.cleaner import examine_cleaner
from tidemill.doctor.cluster import examine_cluster, is_local
from tidemill.doctor.judge import Finding, Level
from tidemill.doctor.machine import examine_folder, examine_machine
from tidemill.options import DEFAULT_BOOTSTRAP, Bootstrap, CommandConfig

_COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


def doctor(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Also check this data folder (log.dirs): the disk under it, and logs not compacted."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per finding.")] = False,
) -> None:
    """Check this machine and the way to a cluster, and say what to fix.

    Connects to the bootstrap address and to every address that the brokers advertise. With --data also checks space,
    inodes, the time an fsync takes, and names the logs that the broker cannot compact. Of a cluster of several it says
    what the next broker to go would take with it. Run it where each broker runs, and where clients run.
    """
    try:
        local = is_local(bootstrap_server)
        dialer = dialer_of(read_command_config(command_config))
    except ValueError as error:
        print(f"tidemill doctor: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    findings = examine_machine(loopback=local)
    if data is not None:
        findings += examine_folder(data)
        findings += examine_cleaner(data, SystemClock().now_ms())
    findings += asyncio.run(examine_cluster(bootstrap_server, dialer=dialer))
    _print(findings, as_json=as_json)
    raise typer.Exit(1 if any(finding.level is Level.FAIL for finding in findings) else 0)


def _print(findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        for finding in findings:
            print(json.dumps(dataclasses.asdict(finding), ensure_ascii=False))
        return
    console = Console(soft_wrap=True, highlight=False)
    for finding in findings:
        colour = _COLOURS[finding.level]
        console.print(f"[{colour}]{finding.level:<4}[/] {escape(finding.check)}: {escape(finding.text)}")
        if finding.advice:
            console.print(f"     → {escape(finding.advice)}")
