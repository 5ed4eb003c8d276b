"""The tools of the field on our worker

Every call of the tools beside `tests/golden/tool_calls.py` goes to a worker of ours: each answer is one the tool takes
and can read, and it has the status, the text of the error and the fields with the types that Apache's worker was
recorded to give (`tests/golden/connect_tools.jsonl`), but for what is different on purpose, which is written down here.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden.record_connect_tools import GOLDEN, prepared, replay
from tidemill import services

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RECORDED = [json.loads(line) for line in GOLDEN.read_text().splitlines()]

OURS = ("warnings", "warning_count", "problem", "facts", "failure")
"""Fields of answers that Apache's worker does not have."""

THEIRS = ".config.task.class"
"""A field that only Apache's has: there are no classes of tasks here."""


@pytest.fixture
def worker(bootstrap: str, tmp_path: Path) -> Iterator[str]:
    """A worker for this test alone; its address."""
    group = f"tools-{os.getpid()}-{time.time_ns()}"
    settings = {f"{role}.storage.topic": f"{group}-{role}" for role in ("config", "offset", "status")}
    settings |= {"group.id": group, "offset.flush.interval.ms": "200"}
    service = services.connect_worker("worker", bootstrap, settings=settings, log=tmp_path / "worker.log").start()
    yield service.facts["url"]
    service.stop()


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    """What of an answer is not as Apache's."""
    for part in ("status", "message"):
        if theirs.get(part) != ours.get(part):
            yield f"{part} {ours.get(part)!r}, theirs {theirs.get(part)!r}"
    their_kinds, our_kinds = theirs.get("kinds", {}), ours.get("kinds", {})
    for where, types in our_kinds.items():
        if any(name.removesuffix("[]") in OURS for name in where.split(".")) or _of_no_tasks(where, their_kinds):
            continue
        unknown = set(types) - set(their_kinds.get(where, []))
        if unknown:
            yield f"{where or 'body'} is {sorted(unknown)}, theirs {their_kinds.get(where)}"
    for where in their_kinds.keys() - our_kinds.keys():
        if not where.endswith(THEIRS) and not _of_no_tasks(where, our_kinds):
            yield f"{where} is missing"


def _of_no_tasks(where: str, kinds: dict[str, Any]) -> bool:
    """Whether this is a task's where there are none: a connector just written has no tasks yet, or has them already."""
    return where.startswith(".tasks[]") and ".tasks" in kinds and ".tasks[]" not in kinds


def test_every_call_of_the_tools_is_served_as_apaches_worker_serves_it(worker: str, tmp_path: Path) -> None:
    answers = list(replay(worker, prepared(tmp_path / f"tools-{time.time_ns()}")))
    wrong = []
    for theirs, answer in zip(RECORDED, answers, strict=True):
        ours = answer["kept"]
        assert (ours["tool"], ours["command"], ours["call"]) == (theirs["tool"], theirs["command"], theirs["call"])
        found = [*answer["unserved"], *differences(theirs, ours)]
        found += ["answered that a rebalance is expected"] * answer["rebalances"]
        wrong += [f"{ours['tool']}, {ours['command']}, {ours['call']}: {each}" for each in found]
    assert not wrong, "\n".join(wrong)
