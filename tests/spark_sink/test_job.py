"""The warehouse job under kill -9, rivals, lost checkpoints and bad input: the table equals the source in the end"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.spark_sink.conftest import Topics, planners_below, poll
from tests.spark_sink.debezium_events import Message, Shop

slow = [pytest.mark.integration, pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(400)]


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
        return self._log.read_text(errors="replace")

    def wait(self, timeout_s: float = 120) -> int:
        assert self.process is not None
        return self.process.wait(timeout_s)

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


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[list[Job]]:
    """Jobs to end after the test, whatever happens in it."""
    started: list[Job] = []
    yield started
    for job in started:
        job.end()


class Load(threading.Thread):
    """Produces a shop's changes, a few at a time, until all are acknowledged."""

    def __init__(self, topics: Topics, name: str, logs: list[list[Message]], pause_s: float) -> None:
        super().__init__(daemon=True)
        self._topics, self._name, self._logs, self._pause_s = topics, name, logs, pause_s

    def run(self) -> None:
        step = 40
        for start in range(0, max(map(len, self._logs)), step):
            self._topics.fill(self._name, [log[start : start + step] for log in self._logs])
            threading.Event().wait(self._pause_s)


class TestInSpark:
    pytestmark = slow

    @pytest.mark.crash
    def test_kill_9_at_random_points_of_the_load(self, topics: Topics, tmp_path: Path, jobs: list[Job]) -> None:
        shop, pick = Shop(seed=11, keys=400), random.Random(5)
        logs = shop.load(4_000, partitions=2)
        name = topics.create(partitions=2)
        load = Load(topics, name, logs, pause_s=0.5)
        load.start()
        job = Job(tmp_path, topics, topics=name)
        jobs.append(job)
        for limit in ("150", "37", "1000"):  # another batch size every time
            job.start(max__offsets__per__trigger=limit)
            seen = job.version + pick.randrange(1, 4)
            poll(lambda seen=seen: job.version >= seen, "a few commits", 120)  # type: ignore[misc]
            job.kill()
        load.join(120)
        job.start()
        poll(lambda: job.rows() == shop.rows, "equality", 120)
        assert job.process is not None
        job.process.terminate()
        assert job.wait() == 0

    @pytest.mark.crash
    def test_a_dead_jvm_ends_the_job_and_a_dead_job_ends_its_jvm(
        self, topics: Topics, tmp_path: Path, jobs: list[Job]
    ) -> None:
        name = topics.create()
        topics.fill(name, Shop().load(50, partitions=1))
        job = Job(tmp_path, topics, topics=name).start()
        jobs.append(job)
        assert job.process is not None
        poll(lambda: job.version >= 1, "a commit", 120)
        os.kill(java_below(job.process.pid), signal.SIGKILL)
        assert job.wait(30) == 1
        assert "tidemill spark: the Spark JVM is gone" in job.said
        job.start()
        poll(lambda: job.process is not None and java_below(job.process.pid, 0), "a JVM", 60)
        java = java_below(job.process.pid)
        job.kill()
        poll(lambda: not lives(java), "the JVM's end", 30)

    @pytest.mark.crash
    def test_a_hung_query_and_a_hung_jvm_end_the_job_which_then_goes_on(
        self, topics: Topics, tmp_path: Path, jobs: list[Job]
    ) -> None:
        shop = Shop(seed=6)
        (log,) = shop.load(200, partitions=1)
        name = topics.create()
        topics.fill(name, [log[:100]])
        job = Job(tmp_path, topics, topics=name, stall__timeout__ms="40000").start()  # above a cold start
        jobs.append(job)
        assert job.process is not None
        poll(lambda: job.version >= 1, "a commit", 120)
        java = java_below(job.process.pid)
        for planner in planners_below(job.process.pid):
            os.kill(planner, signal.SIGSTOP)  # it never answers the JVM again, which waits without a time limit
        topics.fill(name, [log[100:]])
        assert job.wait(120) == 1
        assert "records wait and the query has not moved for" in job.said
        poll(lambda: not lives(java), "the JVM's end", 30)
        job.start()
        poll(lambda: job.rows() == shop.rows, "equality", 120)
        java = java_below(job.process.pid)
        os.kill(java, signal.SIGSTOP)
        assert job.wait(120) == 1
        assert "tidemill spark: the Spark JVM has not answered for 40 s" in job.said
        poll(lambda: not lives(java), "the JVM's end", 30)

    def test_a_writer_that_wakes_up_after_its_successor_stops(
        self, topics: Topics, tmp_path: Path, jobs: list[Job]
    ) -> None:
        shop = Shop(seed=4, keys=60)
        (log,) = shop.load(600, partitions=1)
        name = topics.create()
        topics.fill(name, [log[:200]])
        old, new = Job(tmp_path, topics, topics=name), Job(tmp_path, topics, topics=name)
        jobs += [old, new]
        old.start()
        assert old.process is not None
        poll(lambda: old.version >= 1, "the first job's commit", 120)
        new.start()
        poll(lambda: "tidemill spark ready" in new.said, "the second job", 120)
        os.killpg(old.process.pid, signal.SIGSTOP)
        before = new.version
        topics.fill(name, [log[200:400]])
        poll(lambda: new.version > before, "the second job's commit", 120)
        os.killpg(old.process.pid, signal.SIGCONT)
        topics.fill(name, [log[400:]])
        assert old.wait() == 3
        assert "another job named 'wh' writes table" in old.said
        poll(lambda: new.rows() == shop.rows, "equality", 120)

    def test_it_waits_for_its_topic_and_ends_when_told(self, topics: Topics, tmp_path: Path, jobs: list[Job]) -> None:
        shop = Shop(seed=2)
        name = f"late-{os.getpid()}-{random.Random().random()}"
        job = Job(tmp_path, topics, topics=name, table__path=str(tmp_path / "{topic}")).start()
        jobs.append(job)
        job.table = tmp_path / name
        poll(lambda: "waiting for the topics" in job.said, "the job to wait", 120)
        topics.create(partitions=2, name=name)
        topics.fill(name, shop.load(300, partitions=2))
        poll(lambda: job.rows() == shop.rows, "equality", 120)
        assert f"tidemill spark ready: {name} -> {tmp_path}" in job.said
        poll(lambda: '"lag": 0' in job.said, "the progress line", 30)
        assert job.process is not None
        job.process.terminate()
        assert job.wait(60) == 0

    def test_a_record_that_is_no_change_stops_it_with_one_line(
        self, topics: Topics, tmp_path: Path, jobs: list[Job]
    ) -> None:
        shop = Shop(seed=9)
        logs = shop.load(40, partitions=1)
        logs[0].insert(17, Message(b"{}", b"no change at all"))
        name = topics.create()
        topics.fill(name, logs)
        job = Job(tmp_path, topics, topics=name, trigger__available__now="true").start()
        jobs.append(job)
        assert job.wait() == 3
        (line,) = [line for line in job.said.splitlines() if line.startswith("tidemill spark: ")]
        assert f"{name}-0: the record at offset 17 is not a Debezium change event" in line
        assert job.rows() == []
        job.start(errors__tolerance="all")
        assert job.wait() == 0
        assert job.rows() == shop.rows


def java_below(pid: int, least: int = 1) -> int:
    """The JVM that a job started, 0 when there is none yet and that is allowed."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    found = [child for child in children if "java" in os.path.basename(os.readlink(f"/proc/{child}/exe"))]
    assert len(found) >= least
    return found[0] if found else 0


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
