"""Building the kernel, and not being able to"""

from pathlib import Path

import pytest

from tidemill.spark_sink.kernel import COMPILED, load
from tidemill.spark_sink.kernel_build import CannotBuild, build, compiler


def test_what_is_built_can_be_used(tmp_path: Path) -> None:
    try:
        library = build(tmp_path / "libkernel.so")
    except CannotBuild as error:
        pytest.skip(str(error))
    assert load(library)[1] == COMPILED
    assert [path.name for path in tmp_path.iterdir()] == ["libkernel.so"]


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotBuild, match="no C compiler: install one"):
        compiler()


def test_a_compiler_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(CannotBuild, match="false failed"):
        build(tmp_path / "libkernel.so")
    monkeypatch.setenv("CC", str(tmp_path / "nothing"))
    with pytest.raises(CannotBuild, match="cannot be run"):
        build(tmp_path / "libkernel.so")
