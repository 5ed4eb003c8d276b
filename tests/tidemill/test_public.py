"""What `import tidemill` gives and what it costs"""

import subprocess
import sys
from pathlib import Path

import pytest

import tidemill


def test_every_promised_name_is_there() -> None:
    assert len(set(tidemill.__all__)) == len(tidemill.__all__)
    for name in tidemill.__all__:
        assert getattr(tidemill, name) is not None


def test_the_whole_contract_is_promised() -> None:
    from connect import api

    public = {name for name, value in vars(api).items() if getattr(value, "__module__", "") == "connect.api"}
    assert public <= set(tidemill.__all__)


@pytest.mark.parametrize("heavy", ["confluent_kafka", "grpc", "orjson", "psycopg", "pyspark", "fastapi"])
def test_importing_is_cheap(heavy: str) -> None:
    code = f"import sys, tidemill; raise SystemExit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


def test_a_foreign_core_is_refused(tmp_path: Path) -> None:
    """A folder `core` where Python looks first."""
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("")
    run = subprocess.run(
        [sys.executable, "-c", "import tidemill"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: 'import core' finds")
    assert str(tmp_path / "core" / "__init__.py") in last
    safe = subprocess.run([sys.executable, "-P", "-c", "import tidemill"], cwd=tmp_path, check=False)
    assert safe.returncode == 0


def test_a_folder_without_an_init_is_named_too() -> None:
    with pytest.raises(ImportError, match=r"a folder without __init__\.py"):
        tidemill.refuse_foreign_core(tidemill.__file__, None)
