"""The warehouse job as a process, and what it tells those who watch it"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.spark_sink.conftest import Topics, poll

WAIT_S = 400  # ends a wait for what will not come; a session alone may take a loaded machine minutes


class Job:
    """`tidemill spark run` as a process."""

    def __init__(self, folder: Path, cluster: Topics, **settings: str) -> None:
        self.folder = folder
        self.table = folder / "table"
        self._settings = {
            "name": "wh",
            "bootstrap.servers": cluster.bootstrap,
            "table.path": str(self.table),
            "trigger.interval.ms": "200",
            "checkpoint.location": str(folder / "checkpoints"),
            **{name.replace("__", "."): value for name, value in settings.items()},
        }
        self._log = folder / f"job-{id(self)}.log"
        self._heard = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **changed: str) -> "Job":
        settings = self._settings | {name.replace("__", "."): value for name, value in changed.items()}
        file = self.folder / f"job-{id(self)}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [sys.executable, "-m", "tidemill.cli", "spark", "run", str(file)]
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        return self

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def says(self, *what: str) -> None:
        """Wait for lines, one after the other, behind what was said when this was last asked."""
        for part in what:
            poll(lambda part=part: part in self.said[self._heard :], f"{part!r} in {self._log}", WAIT_S)  # type: ignore[misc]
            self._heard = self.said.index(part, self._heard) + len(part)

    def wait(self, timeout_s: float = WAIT_S) -> int:
        assert self.process is not None
        return self.process.wait(timeout_s)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def terminate(self) -> None:
        assert self.process is not None
        self.process.terminate()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def version(self) -> int:
        return DeltaTable(self.table).version() if DeltaTable.is_deltatable(str(self.table)) else -1

    def rows(self) -> list[dict[str, Any]]:
        if self.version < 0:
            return []
        return sorted(DeltaTable(self.table).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])

    def names(self) -> list[str]:
        return [each["Name"] for each in self.rows()]

    def data_files(self) -> int:
        """Data files in the table's folder, whether a commit lists them yet or not."""
        return len(list(self.table.glob("*.parquet")))

    def asked(self, path: str) -> tuple[int, str]:
        """What the job answers at `metrics.listener`: status and body."""
        (address, *_) = re.findall(r"^tidemill spark watched at: (http://\S+)$", self.said, re.MULTILINE)
        try:
            with urllib.request.urlopen(f"{address}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read().decode()

    @property
    def is_live(self) -> bool:
        return self.asked("/health/live")[0] == 200

    @property
    def waits_for(self) -> dict[str, str]:
        """What is not ready and why; empty when the job is ready."""
        status, body = self.asked("/health/ready")
        reasons = json.loads(body).get("reasons", [])
        assert (status == 200) == (not reasons)
        return {each["what"]: each["why"] for each in reasons}
