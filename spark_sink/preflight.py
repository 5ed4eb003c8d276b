"""What can be known of a job before it starts

`problems_of` needs neither Spark nor the cluster and says what to do: settings that contradict each other, a table path
that cannot become a table, no Java. A cluster or a topic that is not there yet is no hindrance; the job waits for it.

`findings_of` looks further, for whoever wants to know now: it asks the cluster for the topics, looks into the tables,
and says what it found, good or bad.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidemill.spark_sink.cluster import Cluster, ClusterRefused, ClusterUnreachable, UnknownTopic
from tidemill.spark_sink.column_types import UnsupportedSchema, parse_columns
from tidemill.spark_sink.config import TOPIC_PLACEHOLDER, JobConfig
from tidemill.spark_sink.core_api import TopicPartition
from tidemill.spark_sink.jvm import JavaMissing, find_java
from tidemill.spark_sink.offsets import StreamOffset, TopicRecreated
from tidemill.spark_sink.options import EARLIEST, OptionError, parse_options
from tidemill.spark_sink.tables.delta import DeltaTarget, TableUnusable, check_path, check_writable, open_table

ASK_TIMEOUT_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    what: str
    text: str
    good: bool = True


def problems_of(config: JobConfig) -> list[str]:
    """The problems, a sentence each; an empty list when the job may start."""
    return [*_settings(config), *_paths(config), *_java(config)]


def findings_of(config: JobConfig) -> Iterator[Finding]:
    """What Java, the cluster, the topics and the tables are like; for a job without problems."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        java = find_java(os.environ)
        yield Finding(what="java", text=f"{java.version} in {java.home}")
    cluster = Cluster(
        replace(parse_options(config.source_options("earliest"), streaming=True), retries=0), timeout_ms=ASK_TIMEOUT_MS
    )
    for topic in config.topics:
        found, ends = _topic(cluster, config, topic)
        yield found
        if ends is not None:
            yield _table(config, topic, ends)
        elif found.what == "cluster":  # told of once
            break


def _topic(cluster: Cluster, config: JobConfig, topic: str) -> tuple[Finding, StreamOffset | None]:
    options = parse_options(config.source_options("earliest") | {"subscribe": topic}, streaming=True)
    try:
        ends = cluster.ends(options.selection)
        first = cluster.located(StreamOffset(offsets=dict.fromkeys(ends.offsets, EARLIEST)))
    except UnknownTopic as error:
        return Finding(what="topic", text=str(error), good=False), None
    except (ClusterUnreachable, ClusterRefused) as error:
        return Finding(what="cluster", text=str(error), good=False), None
    offsets = sum(ends.offsets[place] - first.offsets[place] for place in ends.offsets)
    text = f"{topic} at {config.bootstrap}: {len(ends.offsets)} partitions, {offsets} offsets"
    return Finding(what="topic", text=text), ends


def _table(config: JobConfig, topic: str, ends: StreamOffset) -> Finding:
    path = config.path_of(topic)
    try:
        table = open_table(path)
        if table is None:
            return Finding(what="table", text=f"{path}: does not exist yet, the job makes it")
        target = DeltaTarget(path, config.name, config.mode)
        found = target.positions(sorted(ends.offsets), ends.topic_ids, config.topic_recreated == "continue")
    except (TableUnusable, TopicRecreated) as error:
        return Finding(what="table", text=str(error), good=False)
    text = f"{path}: version {table.version()}, {len(table.schema().fields)} columns"
    return Finding(what="table", text=f"{text}, {_standing(config.name, found, ends)}")


def _standing(name: str, found: dict[TopicPartition, int], ends: StreamOffset) -> str:
    if not found:
        return f"nothing from a job named {name!r} yet"
    behind = sum(max(end - found.get(place, 0), 0) for place, end in ends.offsets.items())
    return f"job {name!r} is {behind} offsets behind"


def _settings(config: JobConfig) -> list[str]:
    problems = []
    try:
        Cluster(parse_options(config.source_options("earliest"), streaming=True))
    except OptionError as error:
        problems.append(str(error))
    try:
        parse_columns(config.columns)
    except UnsupportedSchema as error:
        problems.append(str(error))
    if "{" in config.table_path.replace(TOPIC_PLACEHOLDER, ""):
        problems.append(f"table.path {config.table_path!r}: the only placeholder is {TOPIC_PLACEHOLDER}")
    topics = sorted(set(config.topics))
    if config.mode == "upsert" and len({config.path_of(topic) for topic in topics}) < len(topics):
        problems.append(
            f"table.path {config.table_path!r}: {len(topics)} topics would overwrite each other's rows of equal key; "
            f"put {TOPIC_PLACEHOLDER} into it for a table each, or set mode=append"
        )
    return problems


def _paths(config: JobConfig) -> list[str]:
    problems = []
    for path in sorted({config.path_of(topic) for topic in config.topics}):
        try:
            check_path(path)
        except TableUnusable as error:
            problems.append(str(error))
    if (location := config.checkpoint_location).startswith(("/", "file://")):  # others are Hadoop's to judge
        try:
            check_writable("checkpoint.location", location)
        except TableUnusable as error:
            problems.append(str(error))
    return problems


def _java(config: JobConfig) -> list[str]:
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started it
        return []
    try:
        find_java(os.environ)
    except JavaMissing as error:
        return [str(error)]
    return []
