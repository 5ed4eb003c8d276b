"""A PySpark program that reads one topic to `noop` and prints what it took, as JSON

Run by `benchmarks.spark` in a process of its own, under the interpreter that has the wanted PySpark, once for our
data source and once for Spark's own. The JVM compiles its loops during the first reads, so those warm the session up;
the median of the next is what a stream that runs for hours sees: wall time, and CPU seconds of driver, JVM and Python
workers together. What the second read took is told too, for jobs that start, read and end.
"""

import argparse
import json
import os
import statistics
import sys

from benchmarks.measure import measured

WARM_UP_READS, READS = 2, 3


def main() -> None:
    """Read the topic several times and print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--format", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--jars", default="")
    options = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
    )
    if options.jars:
        builder = builder.config("spark.jars", options.jars)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")

    def read() -> None:
        frame = (
            session.read.format(options.format)
            .option("kafka.bootstrap.servers", options.bootstrap)
            .option("subscribe", options.topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        frame.write.format("noop").mode("overwrite").save()

    taken = []
    for _ in range(WARM_UP_READS + READS):
        with measured(os.getpid()) as usage:
            read()
        taken.append(usage)
    warm = taken[WARM_UP_READS:]
    figures = {
        "wall_s": statistics.median(each.wall_s for each in warm),
        "cpu_s": statistics.median(each.cpu_s for each in warm),
        "second_read_s": taken[1].wall_s,
    }
    json.dump(figures, sys.stdout)
    session.stop()


if __name__ == "__main__":
    main()
