"""What a Spark program of one's own may import beside the format's name

`format("tidemill")` needs no import: Spark finds it. Three things cannot be done where Spark runs it, in processes of
its JVM, and can in the program itself: choose Java and Python before the session starts, write a stream in output mode
update, and compute how far a query is behind. Users import these from `pyspark_tidemill`.
"""

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.spark_sink.jvm import find_java, make_shim
from tidemill.spark_sink.progress import behind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def builder() -> "SparkSession.Builder":
    """`SparkSession.builder` of a Spark that finds a Java and runs its workers with this Python.

    What the environment already says (`JAVA_HOME`, `PYSPARK_PYTHON`, `PYSPARK_DRIVER_PYTHON`) stays, and under
    `spark-submit` nothing is chosen. Raises JavaMissing.
    """
    from pyspark.sql import SparkSession

    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
        os.environ["JAVA_HOME"] = _java_home()
    return SparkSession.builder


def _java_home() -> str:
    runtime = find_java(os.environ)
    if runtime.has_vector_module:
        return str(runtime.home)
    folder = tempfile.mkdtemp(prefix="pyspark-tidemill-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(make_shim(runtime, Path(folder)))


def to_topics(options: Mapping[str, str] | None = None, **more: str) -> "Callable[[DataFrame, int], None]":
    """A function for `writeStream.foreachBatch` that appends the rows of every batch, in any output mode.

    Columns and options are those of a write with `format("tidemill")`; raises OptionError.
    """
    from tidemill.spark_sink.writer import parse_writer_options

    given = {**(options or {}), **more}
    parse_writer_options(given)

    def write(frame: "DataFrame", batch_id: int) -> None:
        frame.write.format("tidemill").options(**given).mode("append").save()

    return write


def offsets_behind(progress: Any) -> dict[str, str]:
    """How far a query is behind, for its `lastProgress`, under the names that Spark's Kafka source gives its metrics.

    Spark lets no source in Python fill `sources[0].metrics`. Empty as long as Spark does not say.
    """
    behind = behind_of(progress)
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }
