"""The answers Apache Connect gives, from our worker

`tests/golden/connect_rest.jsonl` holds requests and what Apache's worker answered to them, recorded by
`tests/golden/record_connect_rest.py`. The same requests go to ours, one after the other, and the answers are compared
whole, but for what is different on purpose, which is written down here.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.golden.record_connect_rest import GOLDEN, answer_of, send
from tidemill import services

pytestmark = pytest.mark.integration

STEPS = [json.loads(line) for line in GOLDEN.read_text().splitlines()]

INVALID = (
    "Connector configuration is invalid and contains the following {} error(s):\n{}\nYou can also find the above list "
    "of errors at the endpoint `/connector-plugins/{{connectorType}}/config/validate`"
)

ON_PURPOSE: list[tuple[str, str, dict[str, Any], str]] = [
    # What Apache answers with 500 and a Java message is the client's mistake.
    ("POST", "/connectors", {"more": 1}, 'Unrecognized field "more": known are "config", "name", "initial_state"'),
    (
        "POST",
        "/connectors",
        {"initial_state": "LOST"},
        "initial_state must be one of RUNNING, PAUSED, STOPPED, got LOST",
    ),
    ("POST", "/connectors", {"name": "x", "config": None}, 'The body has no "config"'),
    # One mistake is one error; an unknown converter is told the known ones; a file source does not read the terminal.
    (
        "PUT",
        "/connectors/x/config",
        {"tasks.max": "abc"},
        INVALID.format(1, "Invalid value abc for configuration tasks.max: Not a number of type INT"),
    ),
    (
        "PUT",
        "/connectors/x/config",
        {"key.converter": "Avro"},
        INVALID.format(
            1,
            "Invalid value Avro for configuration key.converter: Class Avro could not be found: available converters "
            "are org.apache.kafka.connect.json.JsonConverter, org.apache.kafka.connect.storage.StringConverter, "
            "org.apache.kafka.connect.converters.ByteArrayConverter, or json, string, bytes",
        ),
    ),
    (
        "PUT",
        "/connectors/x/config",
        {"connector.class": "FileStreamSource", "file": None},
        INVALID.format(
            2,
            'Missing required configuration "file" which has no default value.\n'
            'Missing required configuration "topic" which has no default value.',
        ),
    ),
]
"""Requests refused with another text or code: method, path, what is in the body (None: not there), our message."""


def expected_of(request: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """What our worker is to answer."""
    for method, path, part, message in ON_PURPOSE:
        body = request.get("body", {})
        if (request["method"], request["path"]) == (method, path) and all(
            body.get(name) == value for name, value in part.items()
        ):
            return {"status": 400, "body": {"error_code": 400, "message": message}}
    if request["path"].endswith("/tasks") and isinstance(theirs.get("body"), list):
        for task in theirs["body"]:
            task["config"].pop("task.class")  # there are no classes of tasks here
    if request["path"].endswith("/status") and theirs["body"].get("connector", {}).get("state") == "PAUSED":
        # Who is created paused has its tasks at once, paused like it; Apache's has none until it is resumed.
        theirs["body"]["tasks"] = [{"id": 0, **theirs["body"]["connector"]}]
    return theirs


def without_facts(answer: Any) -> Any:
    """The answer without what tasks tell of themselves, for which Apache's status has no field."""
    if isinstance(answer, dict):
        return {name: without_facts(value) for name, value in answer.items() if name != "facts"}
    return [without_facts(each) for each in answer] if isinstance(answer, list) else answer


@pytest.fixture
def worker(bootstrap: str, tmp_path: Path) -> Iterator[str]:
    """A worker for this test alone; its address."""
    group = f"golden-{os.getpid()}-{time.time_ns()}"
    settings = {f"{role}.storage.topic": f"{group}-{role}" for role in ("config", "offset", "status")}
    settings |= {"group.id": group, "offset.flush.interval.ms": "200"}
    service = services.connect_worker("worker", bootstrap, settings=settings, log=tmp_path / "worker.log").start()
    yield service.facts["url"]
    service.stop()


def test_the_same_requests_get_the_same_answers(worker: str, tmp_path: Path) -> None:
    folder = tmp_path / f"rest-{time.time_ns()}"
    folder.mkdir()
    (folder / "in.txt").write_text("one\ntwo\n")

    def fill(text: str) -> str:
        return text.replace("{folder.name}", folder.name).replace("{folder}", str(folder))

    def empty(text: str) -> str:
        named = text.replace(str(folder), "{folder}").replace(folder.name, "{folder.name}")
        return named.replace(worker.removeprefix("http://"), "{worker}").replace(
            '"version":"1.0"', '"version":"{version}"'
        )

    different = []
    with httpx.Client(base_url=worker, timeout=60) as client:
        for step in STEPS:
            request, expected = step["request"], expected_of(step["request"], step["answer"])
            deadline = time.monotonic() + 20
            while (answer := without_facts(answer_of(send(client, request, fill), empty))) != expected:
                if "until" not in request or time.monotonic() > deadline:
                    different.append((request, expected, answer))
                    break
                time.sleep(0.05)
    assert not different, "\n".join(
        f"{request}\n  theirs {theirs}\n  ours   {ours}" for request, theirs, ours in different
    )
