"""A scrape of a broker at work says what docs/metrics.md promises, and numbers that are true."""

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from tests.broker.broker_world import running_broker
from tests.certificates import Authority
from tests.metrics_page import differences
from tidemill.broker.coordination.leaderships import ShardState
from tidemill.broker.figures import NOTHING, OF_GROUPS, PARTS, ListenerRow, TimesRow, take_figures
from tidemill.broker.metrics import of_figures, of_state
from tidemill.broker.request_meter import BOUNDS_S
from tidemill.core.error_code import ErrorCode
from tidemill.core.runtime.exposition import write
from tidemill.core.runtime.metric_parts import MetricParts
from tidemill.core.wire.api import ApiKey
from tidemill.free_ports import free_port

RECORDS, CONSUMED = 100, 60

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples_of(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def counters_of(text: str) -> set[str]:
    """Samples that only rise: not the gauges whose names end in `count`, as the open connections."""
    families = [family for family in text_string_to_metric_families(text) if family.type in ("counter", "histogram")]
    return {sample.name for family in families for sample in family.samples if not sample.name.endswith("_created")}


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def written(**changed: Any) -> Samples:
    figures = replace(NOTHING, listeners=(ListenerRow("PLAINTEXT", 0, 0, {}),), **changed)
    parts = [families for _, families in of_figures(figures, "/data")]
    return samples_of(write([*of_state(3), *chain.from_iterable(parts)]).decode())


def test_partitions_of_groups_are_told_by_what_can_be_done_with_them() -> None:
    partitions = {ShardState.LOADING: 1, ShardState.ACTIVE: 48, ShardState.FAILED: 2}
    found = written(groups=replace(NOTHING.groups, partitions=partitions))
    name = "kafka_server_group_coordinator_metrics_num_partitions"
    told = {labels: count for (sample, labels), count in found.items() if sample == name}
    assert told == {(("state", "loading"),): 1, (("state", "active"),): 48, (("state", "failed"),): 2}


def test_each_phase_has_its_own_time_and_milliseconds() -> None:
    buckets = tuple(number % 2 for number in range(len(BOUNDS_S) + 1))
    row = TimesRow(int(ApiKey.LIST_OFFSETS), sum(buckets), 1.0, 2.0, 3.0, 4.0, 5.0, 15.0, buckets)
    found = written(requests={row.api_key: 99}, times=(row,))
    prefix, request = "kafka_network_requestmetrics_", "ListOffsets"
    phases = ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total")
    sums = [value(found, f"{prefix}{phase}timems_sum", request=request) for phase in phases]
    assert sums == [1e3, 2e3, 3e3, 4e3, 5e3, 15e3]
    counts = {value(found, f"{prefix}{phase}timems_count", request=request) for phase in phases}
    assert counts == {sum(buckets)}
    assert value(found, f"{prefix}requests_total", request=request) == 99
    assert value(found, f"{prefix}totaltimems_bucket", request=request, le="0.5") == 0
    assert value(found, f"{prefix}totaltimems_bucket", request=request, le="1") == 1
    assert value(found, f"{prefix}totaltimems_bucket", request=request, le="+Inf") == sum(buckets)


def test_errors_and_requests_that_nobody_knows_are_numbers() -> None:
    found = written(errors={(int(ApiKey.FETCH), int(ErrorCode.OFFSET_OUT_OF_RANGE)): 2, (4711, 9999): 1})
    name = "kafka_network_requestmetrics_errors_total"
    assert value(found, name, request="Fetch", error="OFFSET_OUT_OF_RANGE") == 2
    assert value(found, name, request="4711", error="9999") == 1


def test_a_part_that_was_not_taken_is_not_told_as_nothing() -> None:
    names = {name for name, _ in written(failed=frozenset([OF_GROUPS]))}
    assert "kafka_server_replicamanager_partitioncount" in names
    assert not [name for name in names if "group" in name]
    left_out = written(failed=frozenset([OF_GROUPS]))
    kinds = {dict(labels)["of"] for name, labels in left_out if name == "tidemill_broker_series_left_out"}
    assert kinds == {"topics", "partitions"}


@contextmanager
def watched_broker(data: Path) -> Iterator[tuple[str, str]]:
    """The addresses of clients and of those who watch."""
    port = free_port()
    command = [sys.executable, "-m", "tidemill.cli", "broker", "start", "--data", str(data), "--log-level", "error"]
    command += ["--listen", "127.0.0.1:0", "--set", f"metrics.listener=127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = re.search(r"listening on (\S+),", process.stdout.readline())
        assert ready is not None
        yield ready[1], f"http://127.0.0.1:{port}/metrics"
    finally:
        process.kill()
        process.communicate()


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())


def work(address: str) -> None:
    """Produce, read some of it in a group, and ask for what is not there."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
    producer = Producer({"bootstrap.servers": address})
    for number in range(RECORDS):
        producer.produce("orders", str(number))
    assert producer.flush(30) == 0
    settings = {"bootstrap.servers": address, "group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "allow.auto.create.topics": False})
    consumer.subscribe(["orders"])
    read = 0
    while read < CONSUMED:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        read += 1
    consumer.commit(offsets=[TopicPartition("orders", 0, CONSUMED)], asynchronous=False)
    assert consumer.list_topics("missing", timeout=30).topics["missing"].error is not None
    consumer.close()


OF_TLS = (
    "tidemill_broker_certificate_not_after_seconds",
    "tidemill_broker_certificate_stale",
    "tidemill_broker_certificate_reload_failures_total",
    "tidemill_broker_handshakes_failed_total",
)
"""What there is for listeners that speak TLS only."""


async def test_a_listener_that_speaks_tls_tells_of_its_certificate(tmp_path: Path) -> None:
    identity = Authority(tmp_path / "authority").signed()
    store = {"ssl_keystore_location": str(identity.both)}
    async with running_broker(tmp_path / "data", listeners="SSL://127.0.0.1:0", **store) as broker:
        tls = broker.servers[0].tls
        assert tls is not None
        identity.both.write_text("nonsense")
        await tls.refresh()
        figures = await take_figures(broker, 10, MetricParts(*PARTS))
        text = write(chain.from_iterable(rows for _, rows in of_figures(figures, "data"))).decode()
    found = samples_of(text)
    values = [value(found, name, listener="SSL") for name in OF_TLS]
    assert values == [tls.certificate.not_after_s, 1, 1, 0]


@pytest.mark.integration
def test_a_scrape_is_what_the_page_lists_and_its_numbers_are_true(tmp_path: Path) -> None:
    with watched_broker(tmp_path) as (address, url):
        work(address)
        text = scrape(url)
        again = scrape(url)
    assert differences(["Broker"], text, may_be_empty=(*OF_TLS, "tidemill_broker_follower_lag")) == []
    found = samples_of(text)
    topic = "kafka_server_brokertopicmetrics_"
    assert value(found, "kafka_server_kafkaserver_brokerstate") == 3
    assert value(found, f"{topic}messagesin_total", topic="orders") == RECORDS
    size = value(found, "kafka_log_log_size", topic="orders", partition="0")
    assert value(found, f"{topic}bytesin_total", topic="orders") == size
    assert value(found, f"{topic}bytesin_total", topic="") > size
    assert value(found, f"{topic}bytesout_total", topic="orders") >= size
    assert value(found, "kafka_log_log_logendoffset", topic="orders", partition="0") == RECORDS
    where = {"consumergroup": "billing", "topic": "orders", "partition": "0"}
    assert value(found, "kafka_consumergroup_lag", **where) == RECORDS - CONSUMED
    assert value(found, "kafka_consumergroup_current_offset", **where) == CONSUMED
    assert value(found, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
    assert value(found, "kafka_server_group_coordinator_metrics_num_partitions", state="active") >= 1
    requests = "kafka_network_requestmetrics_"
    for request in ("Produce", "Fetch", "Metadata", "JoinGroup", "OffsetCommit"):
        assert value(found, f"{requests}requests_total", request=request) >= 1
        assert value(found, f"{requests}totaltimems_sum", request=request) > 0
    error = {"request": "Metadata", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert value(found, f"{requests}errors_total", **error) >= 1
    waited = value(found, f"{requests}remotetimems_sum", request="Produce")
    assert 0 < waited < value(found, f"{requests}totaltimems_sum", request="Produce")
    later = samples_of(again)
    counted = {key: held for key, held in found.items() if key[0] in counters_of(text)}
    assert {key: (held, later.get(key)) for key, held in counted.items() if later.get(key, -1) < held} == {}
