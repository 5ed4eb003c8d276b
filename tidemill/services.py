"""Parts of the platform as child processes

The demo, the tests and a user's own tests start the same commands an operator starts, wait for their readiness line
and stop or kill them. A `Service` is one such process; its output goes to a log file that an error message can quote.

A service dies with the program that started it (see `lifeline`), so a killed test run leaves nothing behind.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidemill import lifeline

LOG_TAIL_LINES = 25  # enough for a Python traceback


class ServiceError(RuntimeError):
    """A service did not come up or ended by itself; the message quotes the end of its log."""


class Service:
    """One long-running command with a readiness line on stdout.

    `command` are the arguments after `tidemill`. `ready` is a regular expression; its groups are kept in `facts`,
    e.g. the port that was chosen for port 0. `python` is the interpreter: another environment's runs what is
    installed there.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        ready: str,
        log: Path,
        environ: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.facts: dict[str, str] = {}
        self._ready = re.compile(ready)
        self._environ = dict(environ or {})
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; raises ServiceError while the service is not running."""
        if self._process is None:
            raise ServiceError(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = 60) -> "Service":
        """Start the process and wait for its readiness line; raises ServiceError with the log's end."""
        if self.running:
            raise ServiceError(f"{self.name} is already running as process {self.pid}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        offset = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                # -P: the current folder is the user's; a queue.py in it is not the standard library's
                [self._python, "-P", "-m", "tidemill.cli", *self.command],
                stdin=subprocess.PIPE,  # open until the process has ended
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", lifeline.VARIABLE: "1", **self._environ},
            )
        self._wait_ready(offset, timeout_s)
        return self

    def _wait_ready(self, offset: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            match = self._ready.search(self.output(offset))
            if match:
                self.facts = {name: value for name, value in match.groupdict().items() if value is not None}
                return
            if not self.running:
                raise ServiceError(f"{self.name} ended with status {self._status()}:\n{self.tail()}")
            time.sleep(0.02)
        self.kill()
        raise ServiceError(f"{self.name} was not ready after {timeout_s:.0f} s:\n{self.tail()}")

    def output(self, offset: int = 0) -> str:
        """What the process has printed from byte `offset` of the log on."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")

    def tail(self) -> str:
        """The end of the log, for an error message."""
        return "\n".join(self.output().splitlines()[-LOG_TAIL_LINES:])

    def stop(self, grace_s: float = 15) -> int | None:
        """Ask the process to end (SIGTERM), kill it after `grace_s`; returns its exit status if any."""
        if self._process is None:
            return None
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self._forget()

    def kill(self) -> None:
        """End the process the hard way: SIGKILL, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def restart(self, timeout_s: float = 60) -> "Service":
        """Start again after `stop` or `kill`."""
        if self._process is not None and not self.running:
            self._forget()
        return self.start(timeout_s)

    def _status(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def _forget(self) -> int | None:
        status = self._status()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None
        return status


ADDRESS = r"(?P<address>[\w.\-\[\]:]+:(?P<port>\d+))"


def broker(
    name: str, data: Path, *, listen: str = "127.0.0.1:0", settings: Mapping[str, str] | None = None, log: Path
) -> Service:
    """A one-node cluster; `facts["address"]` is its bootstrap address once started."""
    options = [option for key, value in (settings or {}).items() for option in ("--set", f"{key}={value}")]
    command = ["broker", "start", "--data", str(data), "--listen", listen, *options]
    return Service(name, command, ready=rf"tidemill broker ready: listening on {ADDRESS}", log=log)


def connect_worker(
    name: str,
    bootstrap: str,
    *,
    rest: str = "127.0.0.1:0",
    settings: Mapping[str, str] | None = None,
    log: Path,
    environ: Mapping[str, str] | None = None,
) -> Service:
    """A Connect worker; `facts["url"]` is its REST address once started."""
    options = [option for key, value in (settings or {}).items() for option in ("--set", f"{key}={value}")]
    command = ["connect", "start", "--bootstrap", bootstrap, "--rest", rest, *options]
    return Service(
        name, command, ready=r"tidemill connect ready: REST (?P<url>http://[^\s,]+)", log=log, environ=environ
    )


def mirror(name: str, properties: Path, *, log: Path, environ: Mapping[str, str] | None = None) -> Service:
    """A mirror that runs the flows of an mm2.properties file."""
    command = ["mirror", "start", str(properties)]
    return Service(name, command, ready=r"tidemill mirror ready", log=log, environ=environ)


def spark_job(
    name: str,
    properties: Path,
    *,
    log: Path,
    environ: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Service:
    """A warehouse job."""
    command = ["spark", "run", str(properties)]
    return Service(name, command, ready=r"tidemill spark ready", log=log, environ=environ, python=python)
