"""A broker's figures under the names that people who run Kafka know

The rule: Kafka's MBean `kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=t` is
`kafka_server_brokertopicmetrics_bytesin_total{topic="t"}`. Domain, type and name are joined and in small letters, keys
are labels, `PerSec` becomes `_total`, the counters of a meter being what Prometheus wants; a histogram's mean and
percentiles become `_sum`, `_count` and, for the total time, buckets. These are the rules that come with the JMX
exporter and that most dashboards are made for. Groups are as kafka_exporter names them; what nobody else has begins
with `tidemill_broker_`.

docs/metrics.md lists them all.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, chain
from typing import Final

from tidemill.broker.cluster_metrics import of_cluster, of_replicas
from tidemill.broker.figures import (
    KINDS_OF,
    OF_CLUSTER,
    OF_GROUPS,
    OF_LISTENERS,
    OF_LOGS,
    OF_REPLICAS,
    OF_REQUESTS,
    Figures,
    Groups,
    TimesRow,
)
from tidemill.broker.request_meter import BOUNDS_S
from tidemill.core.error_code import ErrorCode
from tidemill.core.runtime.disk_space import DiskSpace
from tidemill.core.runtime.exposition import Family, Sample, labels
from tidemill.core.wire.api import ApiKey

STATE, DISK, LEFT_OUT = "state", "disk", "left_out"
"""Parts of a scrape beside those of `Figures`."""

_REQUESTS: Final = "kafka_network_requestmetrics_"
_ERROR_CODES: Final = frozenset(code.value for code in ErrorCode)
_API_KEYS: Final = frozenset(key.value for key in ApiKey)


def of_state(state: int) -> Iterator[Family]:
    """What is told even of a broker that starts; `state` is Kafka's number for how far it is."""
    yield _gauge("kafka_server_kafkaserver_brokerstate", "1 starting, 2 recovering, 3 running, 7 stopping", state)


def of_folder(failed: bool) -> Iterator[Family]:
    """The folder, of which there is one."""
    yield _gauge("kafka_log_logmanager_offlinelogdirectorycount", "log directories that failed", int(failed))


def of_disk(data_dir: str, space: DiskSpace) -> Iterator[Family]:
    """The file system of the folder."""
    where = labels(logDirectory=data_dir)
    total, usable = [(where, space.total_bytes)], [(where, space.usable_bytes)]
    yield Family("tidemill_broker_disk_total_bytes", "gauge", "size of the file system of the log directory", total)
    yield Family("tidemill_broker_disk_usable_bytes", "gauge", "room that the broker may still fill", usable)


def of_figures(figures: Figures, data_dir: str) -> Iterator[tuple[str, Iterator[Family]]]:
    """Everything that is counted on the event loop, by part; what could not be taken is not there."""
    parts = {
        OF_LOGS: chain(_topics(figures), _logs(figures, data_dir)),
        OF_REPLICAS: of_replicas(figures.replicas),
        OF_CLUSTER: of_cluster(figures.cluster, figures.traffic.bytes_copied),
        OF_GROUPS: _groups(figures.groups),
        OF_REQUESTS: _requests(figures),
        OF_LISTENERS: _listeners(figures),
    }
    for part, families in parts.items():
        if part not in figures.failed:
            yield part, families
    yield LEFT_OUT, _left_out(figures)


def _left_out(figures: Figures) -> Iterator[Family]:
    kinds = [kind for part, kinds in KINDS_OF.items() if part not in figures.failed for kind in kinds]
    left_out = [(labels(of=kind), figures.left_out.get(kind, 0)) for kind in kinds]
    yield Family("tidemill_broker_series_left_out", "gauge", "what metrics.series.max left no series for", left_out)


def _gauge(name: str, doc: str, value: float) -> Family:
    return Family(name, "gauge", doc, [("", value)])


def _topics(figures: Figures) -> Iterator[Family]:
    rows = [(labels(topic=""), figures.traffic)]
    rows += [(labels(topic=topic), traffic) for topic, traffic in figures.topics.items()]
    prefix = "kafka_server_brokertopicmetrics_"
    yield Family(
        f"{prefix}messagesin_total", "counter", "records appended", [(at, its.messages_in) for at, its in rows]
    )
    yield Family(
        f"{prefix}bytesin_total", "counter", "bytes appended, as stored", [(at, its.bytes_in) for at, its in rows]
    )
    yield Family(
        f"{prefix}bytesout_total", "counter", "bytes fetched, as stored", [(at, its.bytes_out) for at, its in rows]
    )


def _requests(figures: Figures) -> Iterator[Family]:
    counts = [(labels(request=_request(key)), count) for key, count in sorted(figures.requests.items())]
    yield Family(f"{_REQUESTS}requests_total", "counter", "requests begun", counts)
    errors = [
        (labels(request=_request(key), error=_error(code)), count) for (key, code), count in figures.errors.items()
    ]
    yield Family(f"{_REQUESTS}errors_total", "counter", "error codes in answers", errors)
    refused = [(labels(reason=why), count) for why, count in figures.refused.items()]
    name = "tidemill_broker_requests_refused_total"
    yield Family(name, "counter", "requests not begun, their connection closed", refused)
    rows = [(labels(request=_request(row.api_key)), row) for row in figures.times]
    total = [sample for row in figures.times for sample in _histogram(row)]
    yield Family(f"{_REQUESTS}totaltimems", "histogram", "from arrival to the answer's leaving", total)
    phases: tuple[tuple[str, str, Callable[[TimesRow], float]], ...] = (
        ("requestqueuetimems", "waiting in the connection", lambda row: row.queue_s),
        ("localtimems", "being worked on", lambda row: row.local_s),
        ("remotetimems", "waiting for disk, data or members", lambda row: row.remote_s),
        ("responsequeuetimems", "waiting for earlier answers", lambda row: row.response_queue_s),
        ("responsesendtimems", "being handed to the system", lambda row: row.send_s),
    )
    for name, doc, seconds in phases:
        sums = [(at, row.requests, seconds(row)) for at, row in rows]
        yield Family(f"{_REQUESTS}{name}", "summary", doc, _summary(sums))


def _summary(rows: Iterable[tuple[str, int, float]]) -> Iterator[Sample]:
    for where, count, sum_s in rows:
        yield f"_sum{where}", sum_s * 1e3
        yield f"_count{where}", count


def _histogram(row: TimesRow) -> Iterator[Sample]:
    request = _request(row.api_key)
    for bound_s, count in zip((*BOUNDS_S, float("inf")), accumulate(row.buckets), strict=True):
        bound = "+Inf" if bound_s == float("inf") else f"{bound_s * 1e3:g}"
        yield f"_bucket{labels(request=request, le=bound)}", count
    yield f"_sum{labels(request=request)}", row.total_s * 1e3
    yield f"_count{labels(request=request)}", row.requests


def _request(api_key: int) -> str:
    """An API as Kafka's MBeans name it.

    >>> _request(2)
    'ListOffsets'
    """
    return ApiKey(api_key).name.title().replace("_", "") if api_key in _API_KEYS else str(api_key)


def _error(code: int) -> str:
    return ErrorCode(code).name if code in _ERROR_CODES else str(code)


def _listeners(figures: Figures) -> Iterator[Family]:
    rows = [(labels(listener=each.name), each) for each in figures.listeners]
    prefix = "kafka_server_socket_server_metrics_connection_"
    yield Family(f"{prefix}count", "gauge", "connections that are open", [(at, row.connections) for at, row in rows])
    made = [(at, row.connections_made) for at, row in rows]
    yield Family(f"{prefix}creation_total", "counter", "connections accepted", made)
    refused = [(labels(listener=row.name, reason=why), count) for _, row in rows for why, count in row.refused.items()]
    yield Family("tidemill_broker_connections_refused_total", "counter", "connections not let in", refused)
    shown = [(at, row.certificate) for at, row in rows if row.certificate is not None]
    if figures.control is not None:
        shown.append((labels(listener=figures.control[0]), figures.control[1]))
    ends = [(at, its.not_after_s) for at, its in shown]
    yield Family("tidemill_broker_certificate_not_after_seconds", "gauge", "end of a certificate, since 1970", ends)
    stale = [(at, int(its.stale)) for at, its in shown]
    yield Family("tidemill_broker_certificate_stale", "gauge", "1: its file has changed and cannot be used", stale)
    unread = [(at, its.reload_failures) for at, its in shown]
    yield Family("tidemill_broker_certificate_reload_failures_total", "counter", "new files not usable", unread)
    failed = [(at, its.handshakes_failed) for at, its in shown if its.handshakes_failed is not None]
    yield Family("tidemill_broker_handshakes_failed_total", "counter", "clients that did not get in", failed)


def _logs(figures: Figures, data_dir: str) -> Iterator[Family]:
    rows = [(labels(topic=log.topic, partition=str(log.partition)), log) for log in figures.logs]
    yield Family("kafka_log_log_size", "gauge", "bytes of a partition", [(at, log.size_bytes) for at, log in rows])
    starts = [(at, log.log_start_offset) for at, log in rows]
    yield Family("kafka_log_log_logstartoffset", "gauge", "first offset of a partition", starts)
    ends = [(at, log.log_end_offset) for at, log in rows]
    yield Family("kafka_log_log_logendoffset", "gauge", "offset of the next record", ends)
    segments = [(at, log.segments) for at, log in rows]
    yield Family("kafka_log_log_numlogsegments", "gauge", "segments of a partition", segments)
    flushes = _summary([("", figures.syncs, figures.sync_s)])
    yield Family("kafka_log_logflushstats_logflushrateandtimems", "summary", "rounds of fsync", flushes)
    failed = [(labels(logDirectory=data_dir), figures.uncleanable)]
    name = "kafka_log_logcleanermanager_uncleanable_partitions_count"
    yield Family(name, "gauge", "partitions whose compaction fails", failed)


def _groups(groups: Groups) -> Iterator[Family]:
    prefix = "kafka_coordinator_group_groupmetadatamanager_num"
    yield _gauge(f"{prefix}groups", "consumer groups", sum(groups.states.values()))
    for state, count in groups.states.items():
        yield _gauge(f"{prefix}groups{state.lower()}", f"consumer groups that are {state}", count)
    yield _gauge(f"{prefix}offsets", "offsets that groups have committed", groups.offsets)
    partitions: list[Sample] = [(labels(state=state), count) for state, count in groups.partitions.items()]
    name = "kafka_server_group_coordinator_metrics_num_partitions"
    yield Family(name, "gauge", "partitions led here that keep groups", partitions)
    members: list[Sample] = [(labels(consumergroup=row.group_id), row.members) for row in groups.rows]
    yield Family("kafka_consumergroup_members", "gauge", "members of a group", members)
    offsets: list[Sample] = []
    lags: list[Sample] = []
    for row in groups.positions:
        where = labels(consumergroup=row.group_id, topic=row.topic, partition=str(row.partition))
        offsets.append((where, row.offset))
        if row.lag is not None:
            lags.append((where, row.lag))
    yield Family("kafka_consumergroup_current_offset", "gauge", "offset a group has committed", offsets)
    yield Family("kafka_consumergroup_lag", "gauge", "records behind the end of a partition", lags)
