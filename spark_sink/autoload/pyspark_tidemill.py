"""The module by which Spark finds `format("tidemill")` on its own

Spark imports every top-level module named `pyspark_*` in the driver's environment and registers its `DefaultSource`;
installing the package is all there is to do. The other names are for a program to import, see `docs/spark.md`.
"""

from tidemill.spark_sink.program import builder, offsets_behind, to_topics
from tidemill.spark_sink.source import TidemillDataSource as DefaultSource

__all__ = ["DefaultSource", "builder", "offsets_behind", "to_topics"]
