"""Apache Connect's answers to the calls of the tools, recorded

`python -m tests.golden.record_connect_tools` starts a Kafka node and a Connect worker of the version that
`benchmarks.peers` names, sends every call of the tools that stand beside this file, and writes `connect_tools.jsonl`:
one line per call with its status, the text of its error, and which fields its body has with which types.

`tests/connect/test_tools_golden.py` sends the same calls to our worker and expects the same.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx

from benchmarks import peers
from tests.golden.kcctl import KCCTL
from tests.golden.strimzi import STRIMZI
from tests.golden.terraform_provider import TERRAFORM
from tests.golden.tool_calls import Call, Tool, mismatches

TOOLS: tuple[Tool, ...] = (KCCTL, TERRAFORM, STRIMZI)

CALLS = [(tool, command, call) for tool in TOOLS for command, calls in tool.commands.items() for call in calls]

GOLDEN = Path(__file__).parent / "connect_tools.jsonl"
PLUGINS = ", available connectors are"
"""After these words an error lists what is installed, which is not the same everywhere."""

PATIENCE_S = 30.0


def kinds(value: Any, *, names_are_data: bool = False) -> dict[str, list[str]]:
    """The types at every place of a body; all elements of a list, and all fields if names are data, are one place."""
    found: dict[str, set[str]] = {}

    def walk(value: Any, where: str, merged: bool) -> None:
        found.setdefault(where, set()).add(type(value).__name__)
        if isinstance(value, dict):
            for name, each in value.items():
                walk(each, f"{where}.{'*' if merged else name}", False)
        elif isinstance(value, list):
            for each in value:
                walk(each, f"{where}[]", False)

    walk(value, "", names_are_data)
    return {where: sorted(types) for where, types in sorted(found.items())}


def at(content: Any, place: str) -> Any:
    """What is at a dotted place of a body; None if nothing is."""
    for name in place.split("."):
        if isinstance(content, list):
            content = content[int(name)] if int(name) < len(content) else None
        else:
            content = content.get(unquote(name)) if isinstance(content, dict) else None
    return content


def arrived(call: Call, status: int, content: Any) -> bool:
    """Whether an answer is the one to wait for; `...` is anything."""
    for place, wanted in call.until.items():
        found = status if place == "status" else at(content, place)
        if found is None or wanted not in (found, ...):
            return False
    return True


def filled(content: Any, folder: Path) -> str:
    """The text of a request or pattern with its placeholders filled."""
    return json.dumps(content).replace("{folder.name}", folder.name).replace("{folder}", str(folder))


def rebalances(content: Any) -> bool:
    """Whether Apache's worker asks to come again: 500 for a read, 409 for a write.

    It is about to rebalance, or has not read yet what was written to it a moment ago.
    """
    message = str(content.get("message")) if isinstance(content, dict) else ""
    return "rebalance" in message or "stale configuration" in message


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a call was answered in the end; `done` if that is what it waited for, after so many `rebalances`."""

    status: int
    content: Any
    done: bool
    rebalances: int


def send(client: httpx.Client, tool: Tool, call: Call, folder: Path) -> Answer:
    """One call, repeated as long as it waits or a rebalance is in its way."""
    deadline = time.monotonic() + PATIENCE_S
    rebalanced = 0
    while True:
        body = None if call.body is None else filled(call.body, folder)
        answer = client.request(call.method, call.path, content=body, headers=dict(tool.headers))
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        content = answer.json() if answer.content and is_json else answer.text or None
        rebalanced += rebalances(content)
        done = not rebalances(content) and arrived(call, answer.status_code, content)
        if done or time.monotonic() > deadline:
            return Answer(status=answer.status_code, content=content, done=done, rebalances=rebalanced)
        time.sleep(0.1)


def unserved(call: Call, status: int, content: Any, folder: Path) -> Sequence[str]:
    """Why the tool would not go on after this answer."""
    if status not in call.taken:
        return [f"status {status}, taken are {call.taken}: {content}"]
    if call.reads is None:
        return [] if content is None or call.taken[0] == 200 else [f"an answer with {content}"]
    named = json.loads(json.dumps(content).replace(str(folder), "{folder}").replace(folder.name, "{folder.name}"))
    return list(mismatches(call.reads, named))


def replay(url: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Every call: what is kept of its answer, why it does not serve the tool, and how many rebalances were told."""
    with httpx.Client(base_url=url, timeout=60) as client:
        for tool, command, call in CALLS:
            answer = send(client, tool, call, folder)
            kept: dict[str, Any] = {"tool": tool.name, "command": command, "call": f"{call.method} {call.path}"}
            kept["status"] = answer.status
            if answer.status >= 400:
                kept["message"] = answer.content["message"].partition(PLUGINS)[0]
            if answer.content is not None:
                kept["kinds"] = kinds(answer.content, names_are_data=call.names_are_data)
            waits = [] if answer.done else [f"waits for {call.until}: {answer.content}"]
            why = [*waits, *unserved(call, answer.status, answer.content, folder)]
            yield {"kept": kept, "unserved": why, "rebalances": answer.rebalances}


def prepared(folder: Path) -> Path:
    """The folder with the file that the connectors read."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "in.txt").write_text("one\ntwo\n")
    return folder


def record(folder: Path) -> list[dict[str, Any]]:
    """What Apache's worker answers to every call."""
    with (
        peers.kafka_node(folder / "kafka") as (bootstrap, _),
        peers.connect_worker(folder / "connect", bootstrap) as (url, _),
    ):
        return list(replay(url, prepared(folder)))


def main() -> None:
    """Record and write."""
    with tempfile.TemporaryDirectory(prefix="connect-tools-") as name:
        recorded = record(Path(name))
    for each in recorded:
        if each["unserved"]:
            print(each["kept"]["tool"], each["kept"]["command"], each["kept"]["call"], *each["unserved"])
    GOLDEN.write_text("".join(json.dumps(each["kept"], ensure_ascii=False) + "\n" for each in recorded))
    print(f"{len(recorded)} answers of Apache Connect {peers.KAFKA_VERSION} in {GOLDEN.name}")


if __name__ == "__main__":
    main()
