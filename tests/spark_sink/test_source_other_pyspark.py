"""The reader under the PySpark line that is not installed: 4.2 beside 4.3, or the other way round

The other PySpark is put into a folder of the peers' cache on first use (half a gigabyte, about a minute) and shadows
the installed one by `PYTHONPATH`; everything else stays the same. What runs there are tests of this folder.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import peers

pyspark = pytest.importorskip("pyspark")
pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.java]

ROOT = Path(__file__).resolve().parents[2]
OTHER = "4.3.0" if pyspark.__version__.startswith("4.2.") else "4.2.0"
HERE = "tests/spark_sink"
TESTS = [  # batch, stream and registration by name alone; what the guard of a query takes from the JVM
    f"{HERE}/test_source.py::test_the_columns_are_those_of_the_kafka_source",
    f"{HERE}/test_source.py::test_a_stream_goes_on_where_its_checkpoint_says_and_keeps_its_limit",
    f"{HERE}/test_standstill.py::TestInSpark::test_a_query_whose_thread_is_gone_is_dead_however_active",
]


@pytest.fixture(scope="module")
def other_pyspark() -> Path:
    """A folder that holds the other PySpark; skips where pip cannot get it, and says why."""
    folder = peers.cache() / f"pyspark-{OTHER}"
    if not folder.is_dir():
        part = folder.with_suffix(f".{os.getpid()}.part")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(part), f"pyspark=={OTHER}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            complaints = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
            pytest.skip(f"pip cannot install pyspark {OTHER}: {complaints[-1]}")
        part.rename(folder)
    return folder


@pytest.mark.timeout(600)  # of which the first use's installation takes most
def test_it_reads_batches_and_streams_there_too(other_pyspark: Path, bootstrap: str) -> None:
    environ = {**os.environ, "PYTHONPATH": f"{other_pyspark}{os.pathsep}{ROOT}", "TIDEMILL_TEST_BOOTSTRAP": bootstrap}
    environ.pop("SPARK_HOME", None)
    says = "import pyspark; print(pyspark.__version__)"
    found = subprocess.run([sys.executable, "-c", says], env=environ, capture_output=True, text=True, check=True).stdout
    assert found.strip() == OTHER
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    assert re.search(rf"\b{len(TESTS)} passed", done.stdout), done.stdout[-2000:]  # none was skipped
