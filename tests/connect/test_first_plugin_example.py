"""The example plugin, run as its README says, apart from the REST calls"""

import asyncio
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connect.conftest import Events, python_path
from tidemill.connect.api import ConverterSpec, PluginKind
from tidemill.connect.remote.host import TaskHost
from tidemill.connect.task_spec import TaskExited, TaskId, TaskSpec

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "first-plugin"

pytestmark = pytest.mark.integration


@pytest.fixture
def entry_points() -> dict[str, str]:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, str] = project["project"]["entry-points"]["tidemill.plugins"]
    return found


def config(name: str, **changes: str) -> dict[str, str]:
    return json.loads((EXAMPLE / name).read_text(encoding="utf-8"))["config"] | changes


async def test_a_csv_file_becomes_a_table(
    entry_points: dict[str, str],
    spec: Callable[..., TaskSpec],
    bootstrap: str,
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic, database = unique("people"), tmp_path / "people.db"
    text = ConverterSpec(kind="string")
    source = spec(
        entry_points["csv-rows"],
        config("csv-source.json", topic=topic, file=str(EXAMPLE / "people.csv")),
        bootstrap=bootstrap,
        offsets_topic=unique("offsets"),
    )
    sink = spec(
        entry_points["sqlite-table"],
        config("sqlite-sink.json", topics=topic, database=str(database)),
        kind=PluginKind.SINK,
        bootstrap=bootstrap,
        key_converter=text,
        value_converter=text,
    )
    events = Events()
    environ = {**os.environ, "PYTHONPATH": python_path(EXAMPLE)}
    async with asyncio.TaskGroup() as tasks, TaskHost(environ=environ) as host:
        tasks.create_task(events.collect(host))
        assert await host.validate(source.plugin, source.config) == ()
        (problem,) = await host.validate(source.plugin, {**source.config, "key": "nobody"})
        assert problem.name == "key"
        assert "Use one of id, name, city." in problem.message
        await host.start_task(source)
        ended = await events.wait(TaskExited, of(source.task))
        assert ended.returncode == 0, events.told()
        await host.start_task(sink)
        rows: list[Any] = []
        async with asyncio.timeout(30):
            while len(rows) < 5:
                await asyncio.sleep(0.1)
                rows = read(database)
    assert {key: json.loads(value)["name"] for key, value in rows} == {
        "1": "Ada",
        "2": "Grace",
        "3": "Edsger",
        "4": "Barbara",
        "5": "Tony",
    }


def of(task: TaskId) -> Callable[[TaskExited], bool]:
    return lambda event: event.task == task


def read(database: Path) -> list[Any]:
    if not database.exists():
        return []
    connection = sqlite3.connect(database)
    try:
        return connection.execute("SELECT key, value FROM people").fetchall()
    except sqlite3.OperationalError:
        return []  # the table is not there yet
    finally:
        connection.close()


def test_its_own_tests_as_the_readme_shows_them(tmp_path: Path) -> None:
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    (tests,) = [block for block in re.findall(r"```python\n(.*?)```", readme, re.S) if "def test_" in block]
    (tmp_path / "test_first_plugin.py").write_text(tests, encoding="utf-8")
    shutil.copy(EXAMPLE / "people.csv", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_first_plugin.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": python_path(EXAMPLE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
