"""What can be known to stand in the way of a job before it starts

Everything here fails in seconds, without Spark and without the cluster, and says what to do: settings that contradict
each other, a table path that cannot become a table, no Java. A cluster or a topic that is not there yet is no
hindrance; the job waits for it.
"""

import os

from tidemill.spark_sink.cluster import Cluster
from tidemill.spark_sink.column_types import UnsupportedSchema, parse_columns
from tidemill.spark_sink.config import TOPIC_PLACEHOLDER, JobConfig
from tidemill.spark_sink.jvm import JavaMissing, find_java
from tidemill.spark_sink.options import OptionError, parse_options
from tidemill.spark_sink.tables.delta import TableUnusable, check_path


def problems_of(config: JobConfig) -> list[str]:
    """The problems, a sentence each; an empty list when the job may start."""
    return [*_settings(config), *_paths(config), *_java(config)]


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
    return problems


def _paths(config: JobConfig) -> list[str]:
    problems = []
    for path in sorted({config.path_of(topic) for topic in config.topics}):
        try:
            check_path(path)
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
