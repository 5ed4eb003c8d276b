"""What a flow has done and has left to do: progress lines and metrics

The log gets a line when something was mirrored or when the state of the partitions has changed; a quiet flow is quiet,
also while heartbeats, one a second, travel along it.
Metrics are read off the machines at the moment they are scraped, so they cost nothing in between. Lag is counted in
offsets between the source's end and what the target has acknowledged.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from tidemill.core.runtime.clock import Clock
from tidemill.core.runtime.collected_parts import Collect
from tidemill.mirror.flow import Flow, PartitionEntry
from tidemill.mirror.health import FlowHealth
from tidemill.mirror.link import Progress as LinkProgress
from tidemill.mirror.link import State
from tidemill.mirror.naming import is_heartbeats
from tidemill.mirror.troubles import KINDS

_LABELS = ("source", "target", "topic", "partition")


class Progress:
    """Progress lines of one flow."""

    def __init__(self, flow: Flow, clock: Clock) -> None:
        self._flow = flow
        self._clock = clock
        self._log = structlog.get_logger("tidemill.mirror").bind(flow=flow.config.name)
        self._last: tuple[float, int, int] = (clock.monotonic(), 0, 0)
        self._last_states: dict[str, int] = {}

    async def report(self) -> None:
        """Write a line if there is something to say."""
        entries = [
            entry
            for partition, entry in self._flow.entries.items()
            if not is_heartbeats(self._flow.config.policy, partition.topic)
        ]
        now = self._clock.monotonic()
        size, batches = sum(e.link.progress.bytes for e in entries), sum(e.link.progress.batches for e in entries)
        states = {str(state): count for state, count in sorted(self._flow.states().items())}
        then, size_before, batches_before = self._last
        if batches < batches_before:  # the flow has begun anew
            size_before = batches_before = 0
        if batches == batches_before and states == self._last_states:
            return
        seconds = max(now - then, 0.001)
        self._last, self._last_states = (now, size, batches), states
        trouble = next((entry.link.reason for entry in entries if entry.link.reason), None)
        self._log.info(
            "progress",
            batches=batches - batches_before,
            mb_per_second=round((size - size_before) / 1e6 / seconds, 2),
            lag=self._flow.lag(),
            partitions=states,
            **({} if trouble is None else {"trouble": trouble}),
        )


class FlowMetrics:
    """Metrics of all flows: MirrorMaker 2's under its names, and what it lacks: lag and what is wrong."""

    def __init__(self, flows: Iterable[FlowHealth], clock: Clock) -> None:
        self._flows = tuple(flows)
        self._clock = clock

    def parts(self) -> Mapping[str, Collect]:
        """How they are read off the machines."""
        return {
            "counters": self._counters,
            "partitions": self._of_partitions,
            "flows": self._of_flows,
            "mirror_maker": self._as_mirror_maker,
        }

    def _counters(self) -> Iterator[Metric]:
        yield self._counter("tidemill_mirror_bytes", "bytes of batches on the target", lambda p: p.bytes)
        yield self._counter("tidemill_mirror_batches", "batches on the target", lambda p: p.batches)
        yield self._counter("tidemill_mirror_batches_rebuilt", "batches not passed as bytes", lambda p: p.rebuilt)
        yield self._counter(
            "tidemill_mirror_records_lost", "offsets the source deleted before they were mirrored", lambda p: p.lost
        )
        dropped = CounterMetricFamily(
            "tidemill_mirror_batches_dropped", "batches with nothing to mirror", labels=(*_LABELS, "reason")
        )
        for labels, _, entry in self._partitions():
            for verdict, count in tuple(entry.link.progress.dropped.items()):
                dropped.add_metric([*labels, verdict.value], count)
        yield dropped

    def _as_mirror_maker(self) -> Iterator[Metric]:
        """What MirrorMaker 2 measures too, as its dashboards have it: the topic is the copy's."""

        def family(attribute: str, doc: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"kafka_connect_mirror_mirrorsourceconnector_{attribute}", doc, labels=_LABELS)

        records, size = family("record_count", "records on the target"), family("byte_count", "bytes on the target")
        last = family("replication_latency_ms", "from a record's timestamp to the target, of the latest batch")
        least, greatest, average = (
            family(f"replication_latency_ms_{of}", "the same, of the last minute") for of in ("min", "max", "avg")
        )
        now_ms = self._clock.now_ms()
        for (source, target, *_), _, entry in self._partitions():
            labels = [source, target, entry.target.topic, str(entry.target.partition)]
            progress = entry.link.progress
            records.add_metric(labels, progress.records)
            size.add_metric(labels, progress.bytes)
            if progress.latency.last_ms is not None:
                last.add_metric(labels, progress.latency.last_ms)
            spread = progress.latency.spread(now_ms)
            if spread is not None:
                least.add_metric(labels, spread.least)
                greatest.add_metric(labels, spread.greatest)
                average.add_metric(labels, spread.average)
        yield from (records, size, last, least, greatest, average)

    def _of_partitions(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily("tidemill_mirror_lag_records", "offsets still to mirror", labels=_LABELS)
        age = GaugeMetricFamily(
            "tidemill_mirror_lag_seconds", "age of the oldest offset that is not mirrored", labels=_LABELS
        )
        running = GaugeMetricFamily(
            "tidemill_mirror_partition_running", "1 while mirroring, 0 while anything is in its way", labels=_LABELS
        )
        states = GaugeMetricFamily(
            "tidemill_mirror_partition_state", "1 for the state the partition is in", labels=(*_LABELS, "state")
        )
        for labels, health, entry in self._partitions():
            seen = health.partitions.get(entry.source)
            known = entry.link.progress.lag if seen is None else seen.lag
            if known is not None:
                lag.add_metric(labels, known)
            if seen is not None and seen.lag is not None:
                age.add_metric(labels, seen.lag_seconds)
            reached = not any(probe.reason for probe in health.probes.values())
            well = reached and entry.link.state is State.RUNNING and (seen is None or not seen.reason)
            running.add_metric(labels, int(well))
            states.add_metric([*labels, str(entry.link.state)], 1)
        yield from (lag, age, running, states)

    def _of_flows(self) -> Iterator[Metric]:
        away = GaugeMetricFamily(
            "tidemill_mirror_cluster_unreachable_seconds",
            "for how long the cluster has not answered, 0 while it does",
            labels=("source", "target", "cluster"),
        )
        troubles = GaugeMetricFamily(
            "tidemill_mirror_troubles", "what is wrong, by what it is about", labels=("source", "target", "kind")
        )
        for health in self._flows:
            names = [health.flow.config.source, health.flow.config.target]
            for alias, probe in health.probes.items():
                away.add_metric([*names, alias], probe.unreachable_seconds)
            counts = Counter(trouble.problem.kind for trouble in health.troubles)
            for kind in KINDS:
                troubles.add_metric([*names, kind], counts[kind])
        yield from (away, troubles)

    def _counter(self, name: str, doc: str, read: Callable[[LinkProgress], int]) -> Metric:
        family = CounterMetricFamily(name, doc, labels=_LABELS)
        for labels, _, entry in self._partitions():
            family.add_metric(labels, read(entry.link.progress))
        return family

    def _partitions(self) -> Iterator[tuple[list[str], FlowHealth, PartitionEntry]]:
        for health in self._flows:
            config = health.flow.config
            for partition, entry in tuple(health.flow.entries.items()):  # read by another thread than the mirror's
                labels = [config.source, config.target, partition.topic, str(partition.partition)]
                yield labels, health, entry
