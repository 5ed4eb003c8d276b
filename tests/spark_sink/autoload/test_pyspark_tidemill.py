"""The module that Spark finds by its name"""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")


def test_spark_finds_the_source_by_the_modules_name() -> None:
    script = (
        "import pkgutil, importlib\n"
        "names = [m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')]\n"
        "print([importlib.import_module(name).DefaultSource.name() for name in names])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "'tidemill'" in said
