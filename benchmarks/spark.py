"""Spark: rows per second out of a topic and into the warehouse table

Reading is measured beside Spark's own Kafka source, on the same broker, topic and PySpark, in alternating rounds. That
source exists up to Spark 4.2 and comes from Maven, so both run under a PySpark 4.2 kept in the peers' cache. The
compiled kernel is built first where there is a compiler; what was used is told with the figures.

The warehouse job reads changes with keys drawn from a tenth of their number, measured from the job's readiness line to
the last row's commit, and once more from the first commit on, when the JVM is warm. Where BENCH_BEFORE names another
checkout, that one's job is measured too, on the same topic, in alternating rounds, by the checkout's own environment
(`make install` there first).
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import peers
from benchmarks.measure import emit, measured, ratio
from tidemill import services
from tidemill.spark_sink import kernel, kernel_build

ROOT = Path(__file__).resolve().parent.parent
CASES = {"1KiB": (1024, 1_500_000), "100B": (100, 6_000_000)}
"""name: (record bytes, records), in one partition; so many that planning is a small part of it."""
CHANGES = 4_000_000
TIMEOUT_S = 300
BEFORE = "BENCH_BEFORE"  # environment variable: a checkout to compare the warehouse job with


def fill(address: str, topic: str, size: int, count: int) -> None:
    """Write `count` records of `size` bytes to a new topic of one partition."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": address, "batch.size": 1_048_576, "linger.ms": 50})
    block = [{"value": bytes([65 + number % 26]) * size} for number in range(5_000)]
    for _ in range(count // len(block)):
        while len(producer) > 60_000:
            producer.poll(0.01)
        producer.produce_batch(topic, block)
    producer.flush(120)


def python_with_spark_42() -> Path:
    """An interpreter with PySpark 4.2 and this checkout, made on first use."""
    home = peers.cache() / "spark-4.2"
    python = home / "bin" / "python"
    if not (home / ".done").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "pyspark==4.2.0"]
        subprocess.run([*pip, "psutil", "-e", f"{ROOT}[spark,lake]"], check=True, stdout=sys.stderr)
        (home / ".done").touch()
    return python


def read(python: Path, form: str, address: str, topic: str, jars: str = "") -> dict[str, float]:
    """Wall and CPU seconds that one read of the topic takes, when warm and the second one's."""
    command = [str(python), "-m", "benchmarks.spark_reader", "--format", form, "--bootstrap", address]
    command += ["--topic", topic, *(["--jars", jars] if jars else [])]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"reading with {form} failed: {done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def rates(reads: list[dict[str, float]], count: int) -> dict[str, float | None]:
    """Medians of rows per second and per CPU second; None where nothing was measured."""
    if not reads:
        return {"rows_s": None, "rows_per_cpu_s": None, "rows_s_second_read": None}
    medians = {name: statistics.median(each[name] for each in reads) for name in reads[0]}
    return {
        "rows_s": round(count / medians["wall_s"]),
        "rows_per_cpu_s": round(count / max(medians["cpu_s"], 0.01)),
        "rows_s_second_read": round(count / medians["second_read_s"]),
    }


def reading(address: str, size: int, count: int, rounds: int, *, with_peers: bool) -> dict[str, Any]:
    """Read a topic of `count` records of `size` bytes with both sources, `rounds` times each, one after the other."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    fill(address, topic, size, count)
    python, jars = Path(sys.executable), ""
    if with_peers:
        python = python_with_spark_42()
        folder = peers.libraries("spark-kafka", peers.SPARK_KAFKA, transitive=False)
        jars = ",".join(str(path) for path in sorted(folder.glob("*.jar")))
    mine: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    for _ in range(rounds):
        mine.append(read(python, "tidemill", address, topic))
        if with_peers:
            theirs.append(read(python, "kafka", address, topic, jars))
    ours, kafka = rates(mine, count), rates(theirs, count)
    return {
        "tidemill": ours,
        "kafka_source": kafka,
        "ratio_wall": ratio(ours["rows_s"] or 0, kafka["rows_s"]),
        "ratio_cpu": ratio(ours["rows_per_cpu_s"] or 0, kafka["rows_per_cpu_s"]),
    }


def change(number: int, key: int) -> tuple[bytes, bytes]:
    """Key and value of one change event, with all that Debezium tells of one, as its JSON converter writes it."""
    row = {"id": key, "customer": f"customer {key}", "amount": number / 7, "note": "n" * 60, "active": number % 2 == 0}
    op = "c" if number == key else "u"
    source = {
        "version": "3.6.3.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": number,
        "snapshot": "false",
        "db": "shop",
        "sequence": f'["{number}","{number + 1}"]',
        "ts_us": number * 1_000,
        "ts_ns": number * 1_000_000,
        "schema": "public",
        "table": "orders",
        "txId": number,
        "lsn": number,
        "xmin": None,
    }
    times = {"ts_ms": number, "ts_us": number * 1_000, "ts_ns": number * 1_000_000}
    value = {"before": None, "after": row, "source": source, "transaction": None, "op": op, **times}
    return json.dumps({"id": key}).encode(), json.dumps(value).encode()


def fill_changes(address: str) -> str:
    """Write the change events to a new topic of four partitions; returns its name."""
    topic = f"changes-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, num_partitions=4, replication_factor=1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": address, "batch.size": 1_048_576, "linger.ms": 50})
    keys = CHANGES // 10
    for number in range(CHANGES):
        key, value = change(number, number % keys)
        while len(producer) > 90_000:
            producer.poll(0.01)
        producer.produce(topic, key=key, value=value)
    producer.flush(120)
    return topic


def warehouse(folder: Path, address: str, topic: str, python: str) -> dict[str, float]:
    """Rows per second into a new Delta table, by the job that is installed beside `python`."""
    folder.mkdir()
    table = folder / "table"
    job = folder / "job.properties"
    job.write_text(
        f"name=bench\nkafka.bootstrap.servers={address}\ntopics={topic}\ntable.path={table}\ntrigger.interval.ms=0\n"
        f"checkpoint.location={folder / 'checkpoint'}\n"
    )
    service = services.spark_job("spark", job, log=folder / "spark.log", python=python)
    with contextlib.chdir(folder):  # Spark's Python workers import what lies in the current folder, e.g. a checkout
        service.start(120)
    try:
        with measured(service.pid) as usage:
            first = wait_for_offsets(table, 1)
            warm = time.monotonic()
            wait_for_offsets(table, CHANGES)
            warm_s = time.monotonic() - warm
    finally:
        service.stop()
    return {
        "changes_s": round(CHANGES / usage.wall_s),
        "changes_s_after_first_commit": round((CHANGES - first) / warm_s),
        "changes_per_cpu_s": round(CHANGES / max(usage.cpu_s, 0.01)),
        "rss_mb": round(usage.rss_mb),
    }


def warehouses(folder: Path, address: str, rounds: int) -> dict[str, Any]:
    """Medians of the warehouse job, of this checkout and of the one it is compared with."""
    topic = fill_changes(address)
    before = os.environ.get(BEFORE)
    pythons = {
        "now": sys.executable,
        **({"before": str(Path(before).resolve() / ".venv/bin/python")} if before else {}),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    for number in range(rounds):
        for name, python in pythons.items():
            found[name].append(warehouse(folder / f"{name}-{number}", address, topic, python))
    medians = {
        name: {figure: round(statistics.median(each[figure] for each in rows)) for figure in rows[0]}
        for name, rows in found.items()
    }
    if "before" not in medians:
        return {**medians["now"], "before": None}
    compared = ("changes_s", "changes_s_after_first_commit", "changes_per_cpu_s")
    ratios = {f"ratio_{figure}": ratio(medians["now"][figure], medians["before"][figure]) for figure in compared}
    return {**medians["now"], "before": medians["before"], **ratios}


def wait_for_offsets(table: Path, count: int) -> int:
    """Wait until the table's own offsets add up to `count` or more; returns what they add up to."""
    from deltalake import DeltaTable

    from tidemill.spark_sink.tables.delta import table_offsets

    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        reached = sum(table_offsets(str(table)).values()) if DeltaTable.is_deltatable(str(table)) else 0
        if reached >= count:
            return reached
        time.sleep(0.1)
    raise RuntimeError(f"the table did not reach offset {count} in {TIMEOUT_S} s")


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure reading beside Spark's own source, then the warehouse job."""
    if kernel.load()[1] != kernel.COMPILED:
        kernel_build.main()
    broker = services.broker(
        "broker", folder / "data", settings={"flush.policy": "os"}, log=folder / "broker.log"
    ).start()
    address = broker.facts["address"]
    try:
        cases = {
            case: reading(address, size, count, rounds, with_peers=with_peers) for case, (size, count) in CASES.items()
        }
        facts = {"kernel": kernel.load()[1], "read_to_noop": cases}
        emit("spark", {**facts, "warehouse": warehouses(folder, address, rounds)})
    finally:
        broker.stop()
