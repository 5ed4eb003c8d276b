"""What `import tidemill` gives and what it costs"""

import subprocess
import sys

import pytest

import tidemill


def test_every_promised_name_is_there() -> None:
    assert len(set(tidemill.__all__)) == len(tidemill.__all__)
    for name in tidemill.__all__:
        assert getattr(tidemill, name) is not None


def test_the_whole_contract_is_promised() -> None:
    from tidemill.connect import api

    public = {name for name, value in vars(api).items() if getattr(value, "__module__", "") == "tidemill.connect.api"}
    assert public <= set(tidemill.__all__)


@pytest.mark.parametrize("heavy", ["confluent_kafka", "grpc", "orjson", "psycopg", "pyspark", "fastapi"])
def test_importing_is_cheap(heavy: str) -> None:
    code = f"import sys, tidemill; raise SystemExit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
