"""What a flow has done and has left to do: progress lines and metrics

The log gets a line when something was mirrored or when the state of the partitions has changed; a quiet flow is quiet.
Metrics are read off the machines at the moment they are scraped, so they cost nothing in between. Lag is counted in
offsets between the source's end and what the target has acknowledged.
"""

from collections.abc import Callable, Iterable, Iterator

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tidemill.core.runtime.clock import Clock
from tidemill.mirror.flow import Flow
from tidemill.mirror.link import PartitionLink, State
from tidemill.mirror.link import Progress as LinkProgress
from tidemill.mirror.passthrough import Verdict

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
        entries = self._flow.entries.values()
        now = self._clock.monotonic()
        size, batches = sum(e.link.progress.bytes for e in entries), sum(e.link.progress.batches for e in entries)
        states = {str(state): count for state, count in sorted(self._flow.states().items())}
        then, size_before, batches_before = self._last
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


class FlowCollector(Collector):
    """Metrics of all flows, with MirrorMaker 2's meaning where it has one, and the lag it lacks."""

    def __init__(self, flows: Iterable[Flow]) -> None:
        self._flows = tuple(flows)

    def collect(self) -> Iterator[Metric]:
        """Read every machine."""
        yield self._counter("tidemill_mirror_bytes", "bytes of batches on the target", lambda p: p.bytes)
        yield self._counter("tidemill_mirror_batches", "batches on the target", lambda p: p.batches)
        yield self._counter("tidemill_mirror_batches_rebuilt", "batches not passed as bytes", lambda p: p.rebuilt)
        dropped = CounterMetricFamily(
            "tidemill_mirror_batches_dropped", "batches with nothing to mirror", labels=(*_LABELS, "reason")
        )
        lag = GaugeMetricFamily("tidemill_mirror_lag_records", "offsets still to mirror", labels=_LABELS)
        running = GaugeMetricFamily("tidemill_mirror_partition_running", "1 while mirroring", labels=_LABELS)
        for labels, link in self._links():
            for verdict in Verdict:
                if link.progress.dropped[verdict]:
                    dropped.add_metric([*labels, verdict.value], link.progress.dropped[verdict])
            if link.progress.lag is not None:
                lag.add_metric(labels, link.progress.lag)
            running.add_metric(labels, 1 if link.state is State.RUNNING else 0)
        yield from (dropped, lag, running)

    def _counter(self, name: str, doc: str, read: Callable[[LinkProgress], int]) -> Metric:
        family = CounterMetricFamily(name, doc, labels=_LABELS)
        for labels, link in self._links():
            family.add_metric(labels, read(link.progress))
        return family

    def _links(self) -> Iterator[tuple[list[str], PartitionLink]]:
        for flow in self._flows:
            for partition, entry in flow.entries.items():
                labels = [flow.config.source, flow.config.target, partition.topic, str(partition.partition)]
                yield labels, entry.link
