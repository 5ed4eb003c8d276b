"""What a warehouse job tells those who watch it

Ready is a job whose query reads, with nothing in its way; what is in its way are the problems that it also prints. Dead
is a job whose thread is not heard any more (`pulse`): one that waits for a cluster, a topic or a table is alive.

Neither Spark nor the cluster is asked for an answer: a JVM or a broker that is silent must not silence the job.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric

from tidemill.spark_sink.core_api import Collect, CollectedParts, Probe, Reason
from tidemill.spark_sink.figures import JobFigures, Restart, TableFigures
from tidemill.spark_sink.pulse import Pulse
from tidemill.spark_sink.report import PLACES, JobReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The parts of a job that know how it is."""

    figures: JobFigures
    report: JobReport
    pulse: Pulse


def probe_of(watched: Watched) -> Probe:
    """The answers of a job."""
    metrics = CollectedParts(JobMetrics(watched).parts())
    return Probe(live=watched.pulse.why_dead, ready=lambda: unready(watched), metrics=metrics.text)


def unready(watched: Watched) -> list[Reason]:
    """What is not ready and why; empty when the job reads and nothing is in its way."""
    reasons = [Reason(what=each.where, why=each.what) for each in watched.report.problems]
    reasons += [
        Reason(what=f"table {path}", why=_endless(taken_s)) for path, taken_s in watched.pulse.endless().items()
    ]
    waits_for = watched.pulse.waits_for
    if waits_for is not None and not reasons:
        reasons.append(Reason(what="job", why=waits_for))
    return reasons


def _endless(taken_s: float) -> str:
    remedy = "look at the table's store and at what Spark is doing; if it never ends, start the job again"
    return f"a commit has not ended for {taken_s:.0f} s: {remedy}, which reads the batch again"


class JobMetrics:
    """A job's figures under their names; docs/metrics.md says what each of them means."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def parts(self) -> Mapping[str, Collect]:
        """How they are read."""
        return {"job": self._of_the_job, "tables": self._of_tables, "lag": self._lag}

    def _of_tables(self) -> Iterator[Metric]:
        return _of_tables(self._watched.figures.snapshot().tables)

    def _lag(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "tidemill_spark_lag_records", "Offsets that are not in the table yet", labels=("topic", "partition")
        )
        for place, behind in sorted(self._watched.figures.snapshot().lag.items()):
            lag.add_metric([place.topic, str(place.partition)], behind)
        yield lag

    def _of_the_job(self) -> Iterator[Metric]:
        figures = self._watched.figures.snapshot()
        yield CounterMetricFamily("tidemill_spark_batches", "Batches in all of their tables", value=figures.batches)
        yield CounterMetricFamily(
            "tidemill_spark_records_refused", "Records passed over that cannot be used", value=figures.refused
        )
        yield CounterMetricFamily(
            "tidemill_spark_values_missing",
            "Rows stored with NULL for a value that was not sent",
            value=figures.values_missing,
        )
        restarts = CounterMetricFamily(
            "tidemill_spark_query_restarts", "Queries replaced by another", labels=["reason"]
        )
        for why in Restart:
            restarts.add_metric([why.value], figures.restarts.get(why, 0))
        yield restarts
        problem = GaugeMetricFamily(
            "tidemill_spark_has_problem", "Whether something there is in the job's way", labels=["where"]
        )
        found = {each.where for each in self._watched.report.problems}
        for where in PLACES:
            problem.add_metric([where], where in found)
        yield problem
        reads = self._watched.pulse.waits_for is None
        yield GaugeMetricFamily("tidemill_spark_query_running", "Whether the job's query runs", value=reads)


def _of_tables(tables: Mapping[str, TableFigures]) -> Iterator[Metric]:
    counters: tuple[tuple[str, str, Callable[[TableFigures], float]], ...] = (
        ("tidemill_spark_records", "Records of topics that are in the table", lambda each: each.records),
        ("tidemill_spark_rows", "Rows merged or appended", lambda each: each.rows),
        ("tidemill_spark_upkeep_failures", "Upkeep that failed", lambda each: each.upkeep_failures),
    )
    for name, doc, read in counters:
        counter = CounterMetricFamily(name, doc, labels=["table"])
        for path, each in tables.items():
            counter.add_metric([path], read(each))
        yield counter
    upkeep = CounterMetricFamily("tidemill_spark_upkeep_runs", "Upkeep done", labels=["table", "what"])
    took = SummaryMetricFamily("tidemill_spark_commit_duration_seconds", "Commits and their time", labels=["table"])
    last = GaugeMetricFamily("tidemill_spark_last_commit_duration_seconds", "Time of the latest", labels=["table"])
    at = GaugeMetricFamily("tidemill_spark_last_commit_timestamp_seconds", "When it was", labels=["table"])
    version = GaugeMetricFamily("tidemill_spark_table_version", "Version of the table", labels=["table"])
    for path, each in tables.items():
        upkeep.add_metric([path, "compact"], each.compactions)
        upkeep.add_metric([path, "vacuum"], each.vacuums)
        took.add_metric([path], count_value=each.commits, sum_value=each.commit_s)
        if each.last_commit_ms is not None:
            last.add_metric([path], each.last_commit_s)
            at.add_metric([path], each.last_commit_ms / 1000)
        if each.version >= 0:
            version.add_metric([path], each.version)
    yield from (upkeep, took, last, at, version)
