"""Tasks of several environments under one worker, with real interpreters"""

import asyncio
import os
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connect.conftest import python_path
from tests.processes import processes_below
from tidemill.connect.api import PluginKind
from tidemill.connect.environments import in_use
from tidemill.connect.failure import Failure
from tidemill.connect.task_spec import PluginFailed, TaskExited, TaskReport, TaskSpec

pytestmark = pytest.mark.integration

MODULE = """\
import sys, time
import shelf_library
from pydantic import BaseModel
from tidemill import Fatal, JobTask, Plugin, PluginKind

class Settings(BaseModel):
    parts: int = 1

class Job(JobTask):
    def run(self, context):
        context.report({"library": shelf_library.VERSION, "prefix": sys.prefix})
        while not context.stopping():
            time.sleep(0.02)

def split(settings, tasks_max):
    if settings.parts < 0:
        raise Fatal("less than nothing")
    return [{"part": f"{part} of {shelf_library.VERSION}"} for part in range(settings.parts)]

job = Plugin(name="Shelf", kind=PluginKind.SINK, version=shelf_library.VERSION, config=Settings,
             task=lambda settings: Job(), split=split)
"""


def make(folder: Path, version: str) -> str:
    """An environment with a plugin and a library that the worker has in no version, or in another."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (packages / "shelf.py").write_text(MODULE)
    (packages / "shelf_library.py").write_text(f"VERSION = {version!r}\n")
    (folder / in_use.DESCRIPTION).write_text("{}")
    return str(folder)


def job(spec: Callable[..., TaskSpec], environment: str) -> TaskSpec:
    return spec("shelf:job", {}, kind=PluginKind.SINK, environment=environment)


async def test_two_versions_run_side_by_side_with_their_own_libraries(
    running: Any, spec: Callable[..., TaskSpec], tmp_path: Path
) -> None:
    (tmp_path / "worker").mkdir()
    environments = {version: make(tmp_path / f"shelf-{version}", version) for version in ("1.0", "2.0")}
    for version, environment in environments.items():
        assert not in_use.is_held(environment)
        task = await running.start(job(spec, environment))
        report = await running.events.wait(
            TaskReport, lambda event, task=task: event.task == task and "library" in event.facts
        )
        assert (report.facts["library"], report.facts["prefix"]) == (version, environment)
        assert in_use.is_held(environment)
        found = await running.host.ask(
            "split", "shelf:job", {"parts": "2"}, tasks_max=2, timeout_s=30, environment=environment
        )
        assert found == [{"part": f"0 of {version}"}, {"part": f"1 of {version}"}]
        (problem,) = await running.host.validate("shelf:job", {"parts": "x"}, environment=environment)
        assert problem.name == "parts" and problem.message.startswith("Invalid value x for configuration parts: ")
    with pytest.raises(PluginFailed, match="less than nothing") as caught:
        await running.host.ask("split", "shelf:job", {"parts": "-1"}, timeout_s=30, environment=environment)
    assert caught.value.failure is Failure.CONFIGURATION


@pytest.fixture
def library_of_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "shelf_library.py").write_text("VERSION = 'of the worker'\n")
    monkeypatch.setenv("PYTHONPATH", python_path(tmp_path / "worker"))


@pytest.mark.usefixtures("library_of_the_worker")
async def test_what_the_worker_is_told_to_import_comes_behind_an_environment(
    running: Any, spec: Callable[..., TaskSpec], tmp_path: Path
) -> None:
    environment = make(tmp_path / "shelf", "1.0")
    await running.start(job(spec, environment))
    report = await running.events.wait(TaskReport, lambda event: "library" in event.facts)
    assert report.facts["library"] == "1.0"


async def test_an_environment_that_cannot_be_started_is_named_and_harms_nobody_else(
    running: Any, spec: Callable[..., TaskSpec], tmp_path: Path
) -> None:
    whole, broken = make(tmp_path / "whole", "1.0"), make(tmp_path / "broken", "2.0")
    first = job(spec, whole)
    await running.start(first)
    await running.events.wait(TaskReport, lambda event: "library" in event.facts)
    for link in (Path(broken) / "bin").glob("python*"):
        link.unlink()
    exited = await running.ended(await running.start(job(spec, broken)))
    assert exited.killed and exited.reason.endswith(f"did not start in the plugin environment {broken}")
    (Path(broken) / in_use.DESCRIPTION).unlink()
    venv.EnvBuilder(symlinks=True, with_pip=False).create(broken)
    exited = await running.ended(await running.start(job(spec, broken)))
    assert exited.reason.endswith(broken), "and one whose description is gone is not used either"
    await running.host.stop_task(first.task, 10)
    assert (await running.ended(first.task)).returncode == 0


async def test_a_killed_root_takes_the_tasks_of_its_environment_only(
    running: Any, spec: Callable[..., TaskSpec], tmp_path: Path
) -> None:
    one, two = make(tmp_path / "one", "1.0"), make(tmp_path / "two", "2.0")
    of_one, of_two = job(spec, one), job(spec, two)
    for each in (of_one, of_two):
        await running.start(each)
        await running.events.wait(
            TaskReport, lambda event, each=each: event.task == each.task and "library" in event.facts
        )
    (root,) = processes_below(os.getpid(), "tidemill: nursery of tasks in one")
    root.kill()
    assert (await running.ended(of_one.task)).killed
    again = job(spec, one)
    await running.start(again)
    await running.events.wait(TaskReport, lambda event: event.task == again.task and "library" in event.facts)
    assert of_two.task not in {event.task for event in running.events.seen if isinstance(event, TaskExited)}
    await asyncio.gather(*(running.host.stop_task(each.task, 10) for each in (again, of_two)))
