"""A PySpark program that reads one topic to `noop` and prints what it took, as JSON

Run by `benchmarks.spark` in a process of its own, under the interpreter that has the wanted PySpark, once for our
data source and once for Spark's own. The first read warms the session up, the second is measured: wall time, and CPU
seconds of driver, JVM and Python workers together.
"""

import argparse
import json
import os
import sys

from benchmarks.measure import measured


def main() -> None:
    """Read twice, print the second time."""
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

    read()
    with measured(os.getpid()) as usage:
        read()
    json.dump({"wall_s": usage.wall_s, "cpu_s": usage.cpu_s}, sys.stdout)
    session.stop()


if __name__ == "__main__":
    main()
