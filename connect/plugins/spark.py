"""SparkSink: a connector that keeps the PySpark warehouse job running

The job is a program of its own (`tidemill spark run FILE`); connector and job share a file of settings and nothing
else. The job's table holds its offsets, so the connector needs no consumer, no offsets and no care about how a job
ended: killed, crashed or out of memory, it is started again after a pause that grows, and goes on where the table says.

There is one job, so one task whatever `tasks.max` says; `spark.master` and `min.partitions` spread the reading.

The job runs in a process group of its own and dies with this process; whatever is left of a group (a JVM whose driver
was killed) is killed before the next start. Exit status 2 and 3 mean that somebody has to change something: the task
fails with the job's last line.

Settings are those of a job file (`tidemill spark settings` lists them); `spark.*` goes to Spark and `kafka.*` to its
Kafka clients. Without `kafka.bootstrap.servers` the job reads the worker's own cluster. Records do not pass through
Connect, so converters and transforms have no say: the topics must hold Debezium's JSON.
"""

import contextlib
import difflib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import structlog
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tidemill.connect.api import (
    Fatal,
    InvalidConfig,
    JobTask,
    NotConnected,
    Plugin,
    PluginKind,
    TaskContext,
    Unsupported,
)

log = structlog.get_logger("tidemill.connect.spark")

COMMAND = (sys.executable, "-P", "-m", "tidemill.cli", "spark")
READY = "tidemill spark ready:"
PROGRESS = "tidemill spark progress:"
COMPLAINT = "tidemill spark: "
JOB_VARIABLES = "TIDEMILL_SPARK_"
EXIT_WRONG_FILE, EXIT_NEEDS_DECISION = 2, 3
BACKOFF_S, BACKOFF_MAX_S = 1.0, 60.0
HEALTHY_S = 60.0  # a job that ran this long starts over with a short pause
STOP_GRACE_S = 60.0  # a commit into a large table may take this long
CHECK_TIMEOUT_S = 60.0
_POLL_S = 0.2
_CONNECT_SETTINGS = ("name", "connector.class", "tasks.max", "topics", "topics.regex", "config.action.reload", "config")
_CONNECT_PREFIXES = (
    "key.converter",
    "value.converter",
    "header.converter",
    "transforms",
    "predicates",
    "errors.",
    "consumer.override.",
    "producer.override.",
    "admin.override.",
    "tasks.max.",
)


def _setting(name: str, doc: str, importance: str = "MEDIUM", default: Any = None, **limits: Any) -> Any:
    return Field(
        default, alias=name, description=doc, json_schema_extra={"importance": importance, "group": "Spark"}, **limits
    )


class SparkSinkSettings(BaseModel):
    """Settings of the connector; those that are not given take the job's own defaults."""

    model_config = ConfigDict(extra="allow")

    topics: list[str] = _setting("topics", "Topics of Debezium change events", "HIGH", ..., min_length=1)
    table_path: str = _setting(
        "table.path",
        "Folder or URI of the Delta table; with {topic} in it, one table per topic",
        "HIGH",
        ...,
        min_length=1,
    )
    bootstrap: str | None = _setting("kafka.bootstrap.servers", "Cluster to read, by default the worker's own", "HIGH")
    master: str | None = _setting("spark.master", "Where Spark runs, local[2] by default", "HIGH")
    mode: str | None = _setting("mode", "upsert (default) or append", "HIGH", pattern="^(upsert|append)$")
    trigger_interval_ms: int | None = _setting("trigger.interval.ms", "Pause between two batches", "HIGH", ge=0)
    max_offsets_per_trigger: int | None = _setting("max.offsets.per.trigger", "Records a batch may have", ge=1)
    max_bytes_per_trigger: int | None = _setting("max.bytes.per.trigger", "Bytes of changes a batch may have", ge=1)
    starting_offsets: str | None = _setting(
        "starting.offsets", "Where a new table starts", pattern="^(earliest|latest)$"
    )
    key_columns: list[str] | None = _setting("key.columns", "Key columns, where the message key does not have them")
    columns: str | None = _setting("columns", "Column types for topics without schema part")
    errors_tolerance: str | None = _setting(
        "errors.tolerance", "none stops at a record that is no change event", pattern="^(none|all)$"
    )
    topic_recreated: str | None = _setting(
        "topic.recreated", "stop or continue when a topic was made anew", "LOW", pattern="^(stop|continue)$"
    )
    truncate_policy: str | None = _setting(
        "truncate.policy", "exact or always: a TRUNCATE in one of several partitions", "LOW", pattern="^(exact|always)$"
    )
    isolation_level: str | None = _setting("isolation.level", "As of Kafka's consumer", "LOW")
    fail_on_data_loss: bool | None = _setting("fail.on.data.loss", "Stop when records are gone before they are read")
    group_id: str | None = _setting("group.id", "Group to publish positions for, for lag tools", "LOW")
    min_partitions: int | None = _setting("min.partitions", "Tasks a batch is cut into at least", "LOW", ge=1)
    checkpoint_location: str | None = _setting("checkpoint.location", "Where Spark keeps its checkpoint", "LOW")
    unavailable: str | None = _setting("unavailable.value.placeholder", "As of the source connector", "LOW")
    missing: str | None = _setting(
        "unavailable.value.missing",
        "stop or null when the table lacks a value that did not change",
        "LOW",
        pattern="^(stop|null)$",
    )
    compact_interval: int | None = _setting("table.compact.interval.commits", "When to join small files", "LOW", ge=0)
    vacuum_interval: int | None = _setting("table.vacuum.interval.commits", "When to remove old files", "LOW", ge=0)
    retention_hours: int | None = _setting("table.retention.hours", "How long old files are kept", "LOW", ge=0)
    stall_timeout_ms: int | None = _setting(
        "stall.timeout.ms", "How long a query may stand still while records wait", "LOW", ge=0
    )
    restart_backoff_ms: int | None = _setting("restart.backoff.ms", "First pause before a query restarts", "LOW", ge=1)
    restart_backoff_max_ms: int | None = _setting("restart.backoff.max.ms", "Longest such pause", "LOW", ge=1)

    metrics_listener: str | None = _setting(
        "metrics.listener", "HOST:PORT where the job tells its health and metrics; nowhere by default", "LOW"
    )

    @model_validator(mode="after")
    def _no_unknown(self) -> "SparkSinkSettings":
        known = own_names()
        for name in self.model_extra or {}:
            passed_on = name.startswith(("spark.", "kafka."))
            if passed_on or name in _CONNECT_SETTINGS or name.startswith(_CONNECT_PREFIXES):
                continue
            near = difflib.get_close_matches(name, known, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"unknown setting {name!r}{hint}")
        return self


def own_names() -> list[str]:
    """The names of the connector's settings as users write them."""
    return [info.alias or name for name, info in SparkSinkSettings.model_fields.items()]


def job_settings(
    config: Mapping[str, str], name: str, bootstrap: str = "", client: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The job file's settings for a connector's configuration."""
    names = own_names()
    settings = {key: value for key, value in config.items() if key in names or key.startswith(("spark.", "kafka."))}
    if "kafka.bootstrap.servers" not in settings and bootstrap:
        inherited = {key: value for key, value in (client or {}).items() if key != "client.id"}
        settings = {f"kafka.{key}": str(value) for key, value in inherited.items()} | settings
        settings["kafka.bootstrap.servers"] = bootstrap
    settings["name"] = name
    return settings


def properties_text(settings: Mapping[str, str]) -> str:
    """The settings as a `.properties` file.

    >>> properties_text({"spark.master": "local[2]", "a": " b\\\\c"})
    'spark.master=local[2]\\na=\\\\ b\\\\\\\\c\\n'
    """

    def escaped(text: str, special: str) -> str:
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
        for character in special:
            text = text.replace(character, f"\\{character}")
        return f"\\{text}" if text.startswith(" ") else text

    return "".join(f"{escaped(key, '=: ')}={escaped(value, '')}\n" for key, value in settings.items())


def write_job_file(folder: Path, settings: Mapping[str, str]) -> Path:
    """Write the job file, readable by this user only: it may hold passwords."""
    file = folder / "job.properties"
    file.touch(mode=0o600)
    file.write_text(properties_text(settings), encoding="utf-8")
    return file


def job_environment() -> dict[str, str]:
    """This process' environment without a job's settings: here the connector's configuration is all of them."""
    return {name: value for name, value in os.environ.items() if not name.startswith(JOB_VARIABLES)}


def check(settings: SparkSinkSettings) -> None:
    """Let the job program judge the settings, Java and the table's path; raises InvalidConfig."""
    given = settings.model_dump(by_alias=True, exclude_none=True)
    flat = {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in given.items()}
    with tempfile.TemporaryDirectory(prefix="tidemill-spark-check-") as folder:
        file = write_job_file(Path(folder), job_settings(flat, "check", bootstrap="127.0.0.1:9092"))
        try:
            done = subprocess.run(
                [*COMMAND, "check", "--offline", str(file)],
                capture_output=True,
                text=True,
                timeout=CHECK_TIMEOUT_S,
                check=False,
                env=job_environment(),
            )
        except subprocess.TimeoutExpired:
            raise InvalidConfig("table.path", f"The check took longer than {CHECK_TIMEOUT_S:g} s.") from None
    if done.returncode == 0:
        return
    lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"the check ended with {done.returncode}"]
    message = next((line for line in lines if line.startswith(COMPLAINT)), lines[-1]).removeprefix(COMPLAINT)
    message = message.replace(f"{file}: ", "")
    field = next((name for name in sorted(own_names(), key=len, reverse=True) if name in message), "connector.class")
    raise InvalidConfig(field, message)


class SparkSinkTask(JobTask):
    """Starts the job, watches it, starts it again."""

    def __init__(self, settings: SparkSinkSettings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._restarts = 0

    def stop(self) -> None:
        """Ask `run` to return; the job gets to finish its commit."""
        self._stop.set()

    def run(self, context: TaskContext) -> None:
        """Supervise the job until told to stop; raises Fatal when somebody has to change something."""
        with tempfile.TemporaryDirectory(prefix="tidemill-spark-") as folder:
            settings = job_settings(context.config, context.connector, context.bootstrap_servers, context.client_config)
            file = write_job_file(Path(folder), settings)
            pause_s = BACKOFF_S
            while not self._stopped(context):
                job = _Job(file, context)
                healthy = self._watch(job, context)
                if self._stopped(context):
                    return
                pause_s = BACKOFF_S if healthy else min(pause_s * 2, BACKOFF_MAX_S)
                self._restarts += 1
                log.warning("the Spark job died and starts again", reason=job.reason(), pause_s=pause_s)
                context.report({"spark": "restarting", "restarts": self._restarts, "last_error": job.reason()})
                self._wait(context, pause_s)

    def _stopped(self, context: TaskContext) -> bool:
        return self._stop.is_set() or context.stopping()

    def _watch(self, job: "_Job", context: TaskContext) -> bool:
        """Follow one run of the job to its end; True when it was up for a while."""
        context.report({"spark": "starting", "restarts": self._restarts})
        try:
            waited = 0.0
            while job.process.poll() is None and not self._stopped(context):
                self._stop.wait(_POLL_S)
                waited += _POLL_S
            if self._stopped(context):
                job.terminate()
                return True
        finally:
            job.end()
        if job.process.returncode in (EXIT_WRONG_FILE, EXIT_NEEDS_DECISION):
            raise Fatal(job.reason())
        return job.worked or waited > HEALTHY_S

    def _wait(self, context: TaskContext, seconds: float) -> None:
        waited = 0.0
        while waited < seconds and not self._stopped(context):
            self._stop.wait(_POLL_S)
            waited += _POLL_S


class _Job:
    """One run of the job program."""

    def __init__(self, file: Path, context: TaskContext) -> None:
        self._context = context
        self._last_line = ""
        self._complaint = ""
        self.worked = False  # has committed something
        command = [*COMMAND, "run", "--parent", str(os.getpid()), str(file)]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
                env=job_environment(),
            )
        except OSError as error:
            raise NotConnected(f"the Spark job cannot be started: {error}") from error
        assert self.process.stdout is not None and self.process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._heed(line.rstrip())

    def _heed(self, line: str) -> None:
        if not line:
            return
        if line.startswith(PROGRESS):
            with contextlib.suppress(ValueError):
                facts = json.loads(line.removeprefix(PROGRESS))
                self.worked = self.worked or facts.get("rows", 0) > 0
                state = "waiting" if facts.get("problem") else "running"  # the job says what it waits for
                self._context.report({"spark": state, **facts})
            return
        if line.startswith(READY):
            self._context.report({"spark": "running", "pid": self.process.pid, "last_error": None})
        elif line.startswith(COMPLAINT):
            self._complaint = line.removeprefix(COMPLAINT)
        self._last_line = line
        log.info("spark", line=line)

    def reason(self) -> str:
        """Why the job ended, in one line."""
        status = self.process.returncode
        ending = f"killed by signal {-status}" if status is not None and status < 0 else f"exit status {status}"
        return self._complaint or f"the Spark job ended ({ending}){': ' if self._last_line else ''}{self._last_line}"

    def terminate(self) -> None:
        """Ask the job to end and wait for it."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_GRACE_S)

    def end(self) -> None:
        """Leave nothing behind: neither job nor JVM nor Python workers."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for reader in self._readers:
            reader.join(timeout=5)


def one_task(settings: SparkSinkSettings, tasks_max: int) -> list[Mapping[str, str]]:
    """One job whatever `tasks.max` says: a second one would be a rival for the same table. Spark scales inside it."""
    return [{}]


spark_sink = Plugin(
    name="SparkSink",
    kind=PluginKind.SINK,
    version=version("tidemill"),
    config=SparkSinkSettings,
    task=SparkSinkTask,
    check=check,
    split=one_task,
    unsupported=(Unsupported(name="transforms", why="the job reads the topics itself; transform in Spark instead"),),
    doc="Keeps a Delta table equal to topics of Debezium changes with a supervised PySpark job.",
    aliases=("io.tidemill.SparkSink", "tidemill.SparkSink"),
)
