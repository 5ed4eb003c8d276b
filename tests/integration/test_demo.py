"""The demo as a newcomer runs it: the last line on stdout says that both ends are equal."""

import json
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.timeout(900),
]


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_demo_ends_with_equal_tables(nodes: int) -> None:
    command = [sys.executable, "-m", "tidemill.cli", "demo", "--rows", "500", "--changes", "2000"]
    command += [f"--nodes={nodes}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["ok"] is True
    assert result["equal"] is True
    assert result["captured"] == result["mirrored"] > 500
    assert result["warehouse_rows"] > 0
    assert result["seconds"]["total"] > 0
    assert "curl -X POST" in done.stderr
    assert "The warehouse table equals the source table" in done.stderr
