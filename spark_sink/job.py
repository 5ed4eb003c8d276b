"""The warehouse job: change events in, Delta tables out, exactly once

A streaming query reads decoded chunks (`source`), and each of its batches becomes one commit per table (`tables`).
Whatever Spark remembers is not trusted: every query starts with a checkpoint of its own, at the positions the tables
themselves hold. A lost checkpoint, another batch size, a kill at any moment come to the same: the tables say where to
go on, and rows they have are dropped.

Where a partition is first read from is found once, and is in its table before the first batch is asked for.

A query that fails because something is away (broker, topic, disk) starts again when that is back, and after a pause
that grows where nobody can tell; the job's lines say what it waits for (`report`). A query that would fail again the
same way ends the job with one line that says what to decide. A JVM that ran out of stack or memory, or whose
query stands still while records wait, is not trusted with another query: the job ends, to be started anew. The exit
status tells the cases apart for whoever supervises it: 1 may be started again, 3 needs a decision.

A commit runs in the background while the next batch is read and decoded (`batches`); a batch too large to hold is cut
short where it is read, and the query starts again with fewer records a batch (`batch_size`).

`SIGTERM` lets the commit at hand finish. When this process dies, the JVM it started sees its input end and exits.
"""

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from tidemill.spark_sink.batch_size import BatchSize
from tidemill.spark_sink.batches import Batches
from tidemill.spark_sink.changes import Chunk
from tidemill.spark_sink.cluster import Cluster, ClusterUnreachable, UnknownTopic
from tidemill.spark_sink.config import JobConfig
from tidemill.spark_sink.core_api import Clock, SystemClock, TopicPartition
from tidemill.spark_sink.failures import Failure, JvmDied, failure_of
from tidemill.spark_sink.figures import JobFigures, Restart
from tidemill.spark_sink.jvm import prepare_environment, session_settings, share_bytecode, submitted_master
from tidemill.spark_sink.kernel import COMPILED, kernel
from tidemill.spark_sink.offsets import SourceStopped, StreamOffset, TopicRecreated
from tidemill.spark_sink.options import EARLIEST, LATEST, Selection, SourceOptions, parse_options
from tidemill.spark_sink.progress import exception_of, lag_of
from tidemill.spark_sink.pulse import Pulse
from tidemill.spark_sink.report import QUERY, SOURCE, TABLE, JobReport
from tidemill.spark_sink.scratch import scratch_folder
from tidemill.spark_sink.source_watch import TIMEOUT_MS, SourceWatch
from tidemill.spark_sink.standstill import QueryGuard, Stalled
from tidemill.spark_sink.tables.delta import DeltaTarget, TableUnusable, Unread, check_path
from tidemill.spark_sink.upkeep import Upkeep, UpkeepPlan
from tidemill.spark_sink.watchdog import Watchdog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = structlog.get_logger("tidemill.spark")

EXIT_DONE, EXIT_FAILED, EXIT_NEEDS_DECISION = 0, 1, 3
READY = "tidemill spark ready:"
_POLL_S = 0.2
_WAIT_PAUSE_S = 1.0  # between two looks at what is away
_WAIT_MS = 5_000
_STOP_TIMEOUT = "30s"  # for a query to end when told to; Spark's own default waits for ever, also for a dead thread
_LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Saves a fork of `chmod` for every file of a local checkpoint: a third of what a small batch takes."""
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""A batch is a few dozen rows to Spark: compiling Java for them takes longer than they do."""


class TopicMissing(SourceStopped):
    """A topic is not there, and the job was told to read what is there now."""


class WaitedEnough(RuntimeError):
    """The cluster or the table stayed away, and the job was told to read what is there now."""


class WarehouseJob:
    """One job from start to stop; `run` is called once. What it has to tell is read by any thread at any time."""

    def __init__(self, config: JobConfig, say: Callable[[str], None], tell: Callable[[str], None]) -> None:
        self._config = config
        self._say, self._tell = say, tell  # lines for standard output and for standard error
        self._clock: Clock = SystemClock()
        self._stopping = threading.Event()
        self._size = BatchSize(
            offsets=config.max_offsets_per_trigger,
            offsets_max=config.max_offsets_per_trigger,
            bytes_max=config.max_bytes_per_trigger,
        )
        self._targets: dict[str, DeltaTarget] = {}
        self._upkeep: dict[str, Upkeep] = {}
        self._topic_ids: Mapping[str, Any] = {}
        self.figures = JobFigures(self._clock)
        self.report = JobReport(tell, self._clock, self.figures)
        self.pulse = Pulse(config.stall_timeout_ms / 1000, self._clock)
        self._said_ready = False
        self._has_waited = False  # for something that came back, so that the pauses start over
        self._jvm_is_broken = False
        self._jvm_end = "the Spark JVM is gone"

    def stop(self) -> None:
        """Ask `run` to return; may be called from a signal handler."""
        self._stopping.set()

    def run(self) -> int:
        """Work until stopped, done, or in need of a decision; returns the exit status."""
        options = self._asked_once()
        watched = Cluster(options, timeout_ms=TIMEOUT_MS)
        watch = SourceWatch(lambda: self._look_at(watched, options.selection), self.report)
        with scratch_folder() as folder, watch:
            try:
                session = self._session(folder)
            except Exception as error:
                return self._end(failure_of(error))
            status = EXIT_FAILED
            try:
                status = self._run(session, folder)
            finally:
                self.pulse.ends()
                if self._jvm_is_broken:
                    _kill_jvm(session)  # asked to stop, it might never answer
                else:
                    _quietly(session.stop)
            return status

    def _look_at(self, cluster: Cluster, selection: Selection) -> None:
        """Ask where the topics end; while nobody answers, nobody knows how far behind the job is."""
        ends: Mapping[TopicPartition, int] = {}
        try:
            ends = cluster.ends(selection).offsets
        finally:
            self.figures.source_ends(ends)

    def _session(self, folder: Path) -> "SparkSession":
        master = self._config.master
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # under spark-submit the JVM is there already
        if not submitted:
            runtime = prepare_environment(os.environ, folder, master)
            share_bytecode(os.environ)
            _, decoder = kernel()
            log.info(
                "starting Spark",
                master=master,
                java=str(runtime.home),
                java_version=runtime.version,
                decoder=decoder if decoder == COMPILED else f"NumPy, several times slower: the kernel is {decoder}",
            )
        from pyspark.sql import SparkSession

        if submitted:
            master = submitted_master(master)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.appName(f"tidemill {self._config.name}")
        settings = {**session_settings(master, folder), **_INTERPRETED, **self._config.spark}
        settings.setdefault("spark.sql.streaming.stopTimeout", _STOP_TIMEOUT)
        if master.startswith("local"):
            settings.setdefault("spark.sql.streaming.checkpointFileManagerClass", _LOCAL_CHECKPOINTS)
        if not submitted:
            builder = builder.master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    # -- queries, one after the other

    def _run(self, session: "SparkSession", folder: Path) -> int:
        failures = 0
        while not self._stopping.is_set():
            batches = self.figures.batches
            try:
                start = self._positions()
                if start is None:  # stopped while it waited
                    break
                if self._query(session, folder, start):
                    return EXIT_DONE
            except Exception as error:
                if self._stopping.is_set():
                    break
                failure = failure_of(error)
                if not _jvm_lives(session):
                    return self._end(Failure(kind=JvmDied, message=self._jvm_end))
                if failure.needs_new_jvm:
                    self._jvm_is_broken = True
                    return self._end(failure)
                if failure.needs_decision and not self._may_continue(failure):
                    return self._end(failure)
                if failure.kind is WaitedEnough:
                    return self._end(failure)
                failures = 1 if self.figures.batches > batches or self._has_waited else failures + 1
                self._has_waited = False
                self._pause(failure, failures)
        return EXIT_DONE

    def _query(self, session: "SparkSession", folder: Path, start: StreamOffset) -> bool:
        """Run one query; True when the job is done, False when it needs another batch size. Raises why it failed."""
        batches = Batches(self._size, self._commit_all)
        try:
            query = self._start(session, folder, start, batches)
            if self._watch(session, query, self._guard(query, start), batches):
                return True
            if batches.resizes and batches.failure is None:
                self.figures.restarted(Restart.BATCH_SIZE)
                return False
            raise batches.failure or exception_of(query) or RuntimeError("the query ended by itself")
        finally:
            batches.end()  # before the tables are asked where to go on; a batch that comes later is refused
            self._size = batches.size

    def _may_continue(self, failure: Failure) -> bool:
        return failure.kind is TopicRecreated and self._config.topic_recreated == "continue"

    def _pause(self, failure: Failure, failures: int) -> None:
        pause_ms = min(self._config.restart_backoff_ms << min(failures - 1, 20), self._config.restart_backoff_max_ms)
        if not failure.is_ours:
            self._tell(failure.detail)
        self.report.forget("lag")  # what Spark took for done is not in the table
        self.report.found(_place_of(failure.kind), str(failure))
        log.warning(
            "the query failed and starts again", cause=failure.kind.__name__, reason=str(failure), pause_ms=pause_ms
        )
        self.figures.restarted(Restart.FAILURE)
        self.pulse.begins("its query starts again", pause_ms / 1000)
        self._stopping.wait(pause_ms / 1000)

    def _start(self, session: "SparkSession", folder: Path, start: StreamOffset, batches: Batches) -> "StreamingQuery":
        """Start a query at the tables' positions."""
        self.pulse.begins("its query is starting")
        stream = session.readStream.format("tidemill").options(**self._source_options(start))
        writer = stream.load().writeStream.foreachBatch(batches.take)
        writer = writer.option("checkpointLocation", self._checkpoint(folder))
        if self._config.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._config.trigger_interval_ms} milliseconds")
        query = writer.start()
        if not self._said_ready:
            self._said_ready = True
            self._say(f"{READY} {', '.join(self._config.topics)} -> {self._config.table_path}")
        return query

    def _source_options(self, start: StreamOffset) -> dict[str, str]:
        options = self._config.source_options(json.dumps(start.to_json_offsets()))
        return options | {"maxOffsetsPerTrigger": str(self._size.offsets)}

    def _guard(self, query: "StreamingQuery", start: StreamOffset) -> QueryGuard:
        options = replace(parse_options(self._source_options(start), streaming=True), retries=0)
        timeout_ms = self._config.stall_timeout_ms
        if timeout_ms and not self._config.available_now:
            timeout_ms += self._config.trigger_interval_ms  # so long a batch may rightly wait to begin
        return QueryGuard(query, options, Cluster(options, timeout_ms=_WAIT_MS), timeout_ms / 1000)

    def _checkpoint(self, folder: Path) -> str:
        location = self._config.checkpoint_location.rstrip("/") or str(folder / "checkpoint")
        return f"{location}/{self._config.name}-{self._clock.now_ms()}-{os.getpid()}"

    # -- where to go on

    def _asked_once(self) -> SourceOptions:
        """Options of a driver that asks again itself and wants to hear of a stop in between."""
        return replace(parse_options(self._config.source_options("earliest"), streaming=True), retries=0)

    def _positions(self) -> StreamOffset | None:
        """Where every partition goes on, asked for until cluster, topics and tables are there; None when stopped."""
        cluster = Cluster(self._asked_once(), timeout_ms=_WAIT_MS)
        until = self._clock.monotonic() + self._config.restart_backoff_max_ms / 1000
        told: set[str] = set()
        while not self._stopping.is_set():
            self.pulse.begins("it looks where its tables stand")
            try:
                for path in {self._config.path_of(topic) for topic in self._config.topics}:
                    check_path(path)
                found = self._found_positions(cluster)
            except (UnknownTopic, ClusterUnreachable, TableUnusable) as error:
                self._waits_for(error, is_over=self._config.available_now and self._clock.monotonic() >= until)
                told.add(_place_of(type(error)))
            else:
                for where in told:  # what a query or a commit complained of is told to be over by the next one
                    self.report.over(where)
                self.figures.stands_at(found.offsets)
                return found
            self._stopping.wait(_WAIT_PAUSE_S)
        return None

    def _waits_for(self, error: Exception, is_over: bool) -> None:
        """Tell what the job waits for; raises where it is to end instead."""
        if isinstance(error, UnknownTopic) and self._config.available_now:
            raise TopicMissing(f"{error}; with trigger.available.now the job does not wait for it") from None
        if is_over:
            raise WaitedEnough(str(error)) from None
        self._has_waited = True
        self.report.found(_place_of(type(error)), str(error))

    def _found_positions(self, cluster: Cluster) -> StreamOffset:
        """The tables' positions; partitions that have none get one, in the table, before they are read."""
        existing = cluster.partitions(self._asked_once().selection)
        self._topic_ids = existing.topic_ids
        offsets: dict[TopicPartition, int] = {}
        for topic in self._config.topics:
            target = self._target(topic)
            places = [place for place in existing.offsets if place.topic == topic]
            found = target.positions(places, self._topic_ids, self._config.topic_recreated == "continue")
            offsets |= found
            missing = [place for place in places if place not in found]
            if missing:
                symbol = self._first_offset(target.unread(topic, self._topic_ids, found))
                begun = cluster.located(
                    StreamOffset(offsets=dict.fromkeys(missing, symbol), topic_ids=existing.topic_ids)
                )
                offsets |= target.begin(begun.offsets, self._topic_ids)
        return StreamOffset(offsets=offsets, topic_ids=existing.topic_ids)

    def _first_offset(self, unread: Unread) -> int:
        """Where a partition without a position begins: an offset, EARLIEST or LATEST."""
        match unread:
            case Unread.PARTITION_ADDED:
                return 0
            case Unread.TOPIC_RECREATED:
                return EARLIEST
            case Unread.TOPIC:
                return EARLIEST if self._config.starting_offsets == "earliest" else LATEST

    def _target(self, topic: str) -> DeltaTarget:
        path = self._config.path_of(topic)
        if path not in self._targets:
            self.figures.targets(path)
            self._targets[path] = DeltaTarget(
                path,
                self._config.name,
                self._config.mode,
                missing_as_null=self._config.unavailable_missing == "null",
                truncate_always=self._config.truncate_policy == "always",
            )
            self._upkeep[path] = Upkeep(
                UpkeepPlan(
                    compact_interval_commits=self._config.compact_interval_commits,
                    vacuum_interval_commits=self._config.vacuum_interval_commits,
                    retention_hours=self._config.retention_hours,
                )
            )
        return self._targets[path]

    # -- batches

    def _commit_all(self, chunks: list[Chunk]) -> None:
        for path in sorted({self._config.path_of(chunk.topic) for chunk in chunks}):
            if self._stopping.is_set():
                return  # what the table lacks is read again
            with self.pulse.commit(path):
                self._commit(path, [chunk for chunk in chunks if self._config.path_of(chunk.topic) == path])
        self.figures.batch_done()
        self.report.batch_done()

    def _commit(self, path: str, chunks: list[Chunk]) -> None:
        target, begun_at = self._target(chunks[0].topic), self._clock.monotonic()
        done = target.commit(chunks, self._topic_ids)
        refused = sum(chunk.refused for chunk in chunks)
        self.figures.committed(
            path,
            records=done.records,
            rows=done.rows,
            version=done.version,
            ends=done.ends,
            took_s=self._clock.monotonic() - begun_at,
            values_missing=done.values_missing,
            refused=refused,
        )
        if done.values_missing:
            log.warning("rows lack a value that was not sent", count=done.values_missing, table=path)
        if refused:
            first = next(chunk.complaint for chunk in chunks if chunk.complaint)
            log.warning("records that cannot be used were passed over", count=refused, first=first, table=path)
        if done.rows and target.table is not None:
            self.figures.kept_small(path, self._upkeep[path].committed(target.table))

    # -- watching

    def _watch(self, session: "SparkSession", query: "StreamingQuery", guard: QueryGuard, batches: Batches) -> bool:
        """Wait until the query ends or the job is stopped; True when it ended as it should. Raises Stalled."""
        limit_s = self._config.stall_timeout_ms / 1000
        with Watchdog(limit_s, lambda: self._give_up_jvm(session, limit_s)) as watchdog:
            try:
                while not self._stopping.wait(_POLL_S):
                    watchdog.beat()
                    self.pulse.reads()
                    batches.check()
                    if batches.resizes and query.isActive:
                        _quietly(query.stop)
                    self._progress(query, batches)
                    guard.check(self._clock.monotonic(), busy=batches.is_busy)
                    if not query.isActive and not batches.is_busy:  # a long commit must not look like a silent JVM
                        batches.check()
                        self._progress(query, batches, force=True)
                        ended_well = batches.failure is None and query.exception() is None
                        return ended_well and not batches.resizes and self._config.available_now
            except Stalled:
                raise
            except Exception:
                _quietly(query.stop)  # whoever comes next must not find it at work
                raise
        self.pulse.begins("the job stops")
        error = batches.end()  # let a commit at hand finish
        if error is not None:
            log.warning("the commit at hand failed; the next start reads its records again", reason=str(error))
        _quietly(query.stop)
        self._progress(query, batches, force=True)
        return True

    def _give_up_jvm(self, session: "SparkSession", silent_s: float) -> None:
        """End a JVM that does not answer, so that whoever waits for its answer gets an error."""
        self._jvm_end = f"the Spark JVM has not answered for {silent_s:.0f} s"
        if not _kill_jvm(session):
            self._tell(f"tidemill spark: {self._jvm_end}")
            os._exit(EXIT_FAILED)  # spark-submit started it and ends with this process

    def _progress(self, query: "StreamingQuery", batches: Batches, force: bool = False) -> None:
        if force or self.report.is_due():
            facts: dict[str, Any] = {}
            progress = _quietly(lambda: query.lastProgress)
            if progress is not None and not batches.is_busy and batches.failure is None:
                self.report.over(QUERY)  # it plans, and that is all that an idle one does
            lag = lag_of(progress)
            if lag is not None and not batches.resizes:  # what Spark takes for done may not be in the table, or be cut
                facts["lag"] = lag + (batches.taken if batches.is_busy else 0)
            self.report.progress(facts)

    def _end(self, failure: Failure) -> int:
        if not failure.is_ours:
            self._tell(failure.detail)
        self._tell(
            f"tidemill spark: {failure}".replace("failOnDataLoss", "fail.on.data.loss")
        )  # its name in a job file
        return EXIT_NEEDS_DECISION if failure.needs_decision else EXIT_FAILED


def _place_of(kind: type[BaseException]) -> str:
    """Which of the job's three sides an error is about."""
    if issubclass(kind, ClusterUnreachable | UnknownTopic):
        return SOURCE
    return TABLE if issubclass(kind, TableUnusable) else QUERY


def _jvm_lives(session: "SparkSession") -> bool:
    """Whether the JVM still answers."""
    try:
        return bool(session.sparkContext.version)
    except Exception:
        return False


def _kill_jvm(session: "SparkSession") -> bool:
    """End a JVM that may not listen any more; False when it is not ours to end, under spark-submit."""
    process = getattr(session.sparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
    return process is not None


def _quietly(action: Callable[[], Any]) -> Any:
    """Do what may fail because the JVM is on its way out as well."""
    try:
        return action()
    except Exception as error:
        log.debug("not done", reason=str(error))
        return None
