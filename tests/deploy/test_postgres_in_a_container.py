"""Tests of the PostgreSQL source once more, against a server that testcontainers has started

A sample that touches what a server decides: types, catalog, slots, snapshots, sessions, and the change stream.
All of them run so with the variables of `tests.deploy.engine.docker_api` and `TIDEMILL_POSTGRES_IMAGE` set.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.engine import Engine, docker_api
from tidemill.testing.postgres_container import IMAGE_VARIABLE

pytestmark = [pytest.mark.integration, pytest.mark.deploy, pytest.mark.postgres, pytest.mark.timeout(1_500)]

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = (
    "tests/tidemill/testing/test_plugin.py::test_the_postgres_fixture_can_be_captured",
    *(
        f"tests/connect/plugins/postgres/test_{name}.py"
        for name in ("catalog", "connection", "every_column", "slot", "snapshot", "source_values")
    ),
)


def test_the_source_captures_a_server_in_a_container(engine: Engine, postgres: str, tmp_path: Path) -> None:
    with docker_api(engine, tmp_path) as variables:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "postgres", *SAMPLE],
            env={**os.environ, **variables, IMAGE_VARIABLE: postgres},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=1_200,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    told = done.stdout.splitlines()[-1]
    passed = re.match(r"(\d+) passed", told)
    assert passed is not None and int(passed[1]) >= len(SAMPLE), told
    assert "skipped" not in told, told
