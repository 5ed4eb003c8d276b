"""Apache Connect's answers to a script of REST requests, recorded

`python -m tests.golden.record_connect_rest` starts a Kafka node and a Connect worker of the version that
`benchmarks.peers` names, sends every request below, and writes `connect_rest.jsonl` beside this file: one line per step
with the request and the answer. What differs from run to run stands there as a placeholder: `{worker}` its address,
`{folder}` the folder of the files, `{version}` a plugin's version.

`tests/connect/test_rest_golden.py` sends the same requests to our worker and expects the same answers.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks import peers

GOLDEN = Path(__file__).parent / "connect_rest.jsonl"

SOURCE = {"connector.class": "FileStreamSource", "file": "{folder}/in.txt", "topic": "{folder.name}-lines"}
SINK = {"connector.class": "FileStreamSink", "file": "{folder}/out.txt", "topics": "{folder.name}-lines"}


def step(method: str, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
    """One request; `until` names the state in which the connector and its tasks have to be before it is recorded."""
    return {"method": method, "path": path, **({} if body is None else {"body": body}), **more}


def missing() -> Iterator[dict[str, Any]]:
    """Requests about connectors and tasks that do not exist."""
    for path in ("", "/config", "/status", "/tasks", "/tasks/0/status", "/offsets", "/topics"):
        yield step("GET", f"/connectors/no{path}")
    for path in ("/pause", "/resume", "/stop", "/topics/reset"):
        yield step("PUT", f"/connectors/no{path}")
    for path in ("/restart", "/restart?includeTasks=true", "/restart?onlyFailed=true", "/tasks/0/restart"):
        yield step("POST", f"/connectors/no{path}")
    yield step("DELETE", "/connectors/no")
    yield step("DELETE", "/connectors/no/offsets")
    yield step("PATCH", "/connectors/no/config", {"a": "b"})
    yield step("PATCH", "/connectors/no/offsets", {"offsets": []})
    yield step("GET", "/nowhere")
    yield step("GET", "/connectors/no/tasks/x/status")
    yield step("GET", "/connector-plugins/Nope/config")
    yield step("GET", "/admin/loggers/no.such.logger")


def refused() -> Iterator[dict[str, Any]]:
    """Requests that exist and make no sense."""
    yield step("POST", "/connectors", {"name": "x", "config": {}})
    yield step("POST", "/connectors", {"name": "x", "config": {"name": "y", **SOURCE}})
    yield step("POST", "/connectors", {"name": "", "config": SOURCE})
    yield step("POST", "/connectors", {"config": SOURCE})
    yield step("POST", "/connectors", {"name": "x", "config": SOURCE, "more": 1})
    yield step("POST", "/connectors", {"name": "x", "config": SOURCE, "initial_state": "LOST"})
    yield step("POST", "/connectors", {"name": "x"})
    yield step("PUT", "/connectors/x/config", {"name": "y", **SOURCE})
    yield step("PUT", "/connectors/x/config", {**SOURCE, "tasks.max": "abc"})
    yield step("PUT", "/connectors/x/config", {**SOURCE, "tasks.max": 0, "errors.tolerance": "some"})
    yield step("PUT", "/connectors/x/config", {"connector.class": "FileStreamSource"})
    yield step("PUT", "/connectors/x/config", {**SINK, "topics.regex": "a.*"})
    yield step("PUT", "/connectors/x/config", {"connector.class": "FileStreamSink", "file": "x"})
    yield step("PUT", "/connectors/x/config", {**SINK, "topics": "a,b", "errors.deadletterqueue.topic.name": "b"})
    yield step("PUT", "/connectors/x/config", {**SOURCE, "key.converter": "Avro"})
    yield step("PUT", "/connector-plugins/FileStreamSink/config/validate", SOURCE)
    yield step("PUT", "/admin/loggers/org.apache.kafka", {})
    yield step("PUT", "/admin/loggers/org.apache.kafka", {"level": "LOUD"})
    yield step("DELETE", "/connectors")


def life() -> Iterator[dict[str, Any]]:
    """A source and a sink from their creation to their deletion."""
    yield step("GET", "/connectors")
    yield step(
        "POST", "/connectors", {"name": " lines ", "config": {**SOURCE, "tasks.max": 1, "tasks.max.enforce": True}}
    )
    yield step("POST", "/connectors", {"name": "lines", "config": SOURCE})
    yield step("GET", "/connectors/lines/status", until="RUNNING")
    for path in ("", "/config", "/tasks", "/tasks/0/status"):
        yield step("GET", f"/connectors/lines{path}")
    yield step("GET", "/connectors/lines/tasks/1/status")
    yield step("POST", "/connectors/lines/tasks/1/restart")
    yield step("GET", "/connectors/lines/offsets", until="offsets")
    yield step("GET", "/connectors/lines/topics", until="topics")
    yield step("GET", "/connectors?expand=status&expand=info")
    yield step("GET", "/connectors?expand=nothing")
    yield step("GET", "/connectors/lines/tasks-config")
    yield step("POST", "/connectors/lines/restart?includeTasks=true&onlyFailed=true")
    yield step("PUT", "/connectors/lines/config", {**SOURCE, "batch.size": "7"})
    yield step("PATCH", "/connectors/lines/config", {"batch.size": None, "tasks.max": 2})
    yield step("GET", "/connectors/lines/status", until="RUNNING")
    yield step("POST", "/connectors/lines/restart")
    yield step("GET", "/connectors/lines/status", until="RUNNING")
    yield step("POST", "/connectors/lines/restart?includeTasks=true")
    yield step("GET", "/connectors/lines/status", until="RUNNING")
    yield step("POST", "/connectors/lines/tasks/0/restart")
    yield step("GET", "/connectors/lines/status", until="RUNNING")
    yield step("PATCH", "/connectors/lines/offsets", {"offsets": []})
    yield step("DELETE", "/connectors/lines/offsets")
    yield step("PUT", "/connectors/lines/pause")
    yield step("GET", "/connectors/lines/status", until="PAUSED")
    yield step("PUT", "/connectors/lines/resume")
    yield step("GET", "/connectors/lines/status", until="RUNNING")
    yield step("PUT", "/connectors/lines/stop")
    yield step("GET", "/connectors/lines/status", until="STOPPED")
    for path in ("", "/tasks", "/offsets"):
        yield step("GET", f"/connectors/lines{path}")
    yield step("DELETE", "/connectors/lines/offsets")
    yield step("GET", "/connectors/lines/offsets")
    yield step("POST", "/connectors", {"name": "sink", "config": SINK, "initial_state": "paused"})
    yield step("GET", "/connectors/sink/status", until="PAUSED")
    yield step("PUT", "/connectors/sink/resume")
    yield step("GET", "/connectors/sink/offsets", until="offsets")
    yield step("PUT", "/connectors/sink/stop")
    yield step("GET", "/connectors/sink/status", until="STOPPED")
    partition = {"kafka_topic": SINK["topics"], "kafka_partition": 0}
    yield step("PATCH", "/connectors/sink/offsets", {"offsets": [{"partition": {}, "offset": None}]})
    yield step("PATCH", "/connectors/sink/offsets", {"offsets": [{"partition": partition, "offset": {"position": 1}}]})
    yield step(
        "PATCH", "/connectors/sink/offsets", {"offsets": [{"partition": partition, "offset": {"kafka_offset": "1"}}]}
    )
    yield step("GET", "/connectors/sink/offsets")
    yield step("PATCH", "/connectors/sink/offsets", {"offsets": [{"partition": partition, "offset": None}]})
    yield step("GET", "/connectors/sink/offsets")
    yield step("PUT", "/connectors/lines/topics/reset")
    yield step("GET", "/connectors/lines/topics", until="no topics")
    for name in ("sink", "lines"):
        yield step("DELETE", f"/connectors/{name}")
        yield step("GET", f"/connectors/{name}")
        yield step("GET", f"/connectors/{name}/status", until="gone")
    yield step("GET", "/connectors")


def arrived(content: Any, status: int, wanted: str) -> bool:
    """Whether an answer is the one to wait for."""
    match wanted:
        case "offsets":
            return bool(content.get("offsets"))
        case "topics" | "no topics":
            return any(each["topics"] for each in content.values()) is (wanted == "topics")
        case "gone":
            return status == 404
    if status != 200 or (wanted == "RUNNING" and not content["tasks"]):
        return False
    return {content["connector"]["state"], *(task["state"] for task in content["tasks"])} == {wanted}


def send(client: httpx.Client, request: dict[str, Any], fill: Callable[[str], str]) -> httpx.Response:
    """Send the request of a step, its placeholders filled."""
    body = None if "body" not in request else fill(json.dumps(request["body"]))
    return client.request(
        request["method"], request["path"], content=body, headers={"Content-Type": "application/json"}
    )


def answer_of(response: httpx.Response, empty: Callable[[str], str]) -> dict[str, Any]:
    """What is kept of an answer, what changes from run to run replaced by placeholders."""
    answer: dict[str, Any] = {"status": response.status_code}
    if "location" in response.headers:
        answer["location"] = empty(response.headers["location"])
    if response.content:
        answer["body"] = json.loads(empty(response.text))
    return answer


def record(url: str, folder: Path) -> list[dict[str, Any]]:
    """Every step with its answer."""
    worker = url.removeprefix("http://")

    def fill(text: str) -> str:
        return text.replace("{folder.name}", folder.name).replace("{folder}", str(folder))

    def empty(text: str) -> str:
        named = text.replace(str(folder), "{folder}").replace(folder.name, "{folder.name}").replace(worker, "{worker}")
        return named.replace(f'"version":"{peers.KAFKA_VERSION}"', '"version":"{version}"')

    recorded = []
    with httpx.Client(base_url=url, timeout=60) as client:
        for request in (*missing(), *refused(), *life()):
            deadline = time.monotonic() + 60
            while True:
                response = send(client, request, fill)
                wanted = request.get("until")
                if wanted is None or arrived(response.json(), response.status_code, wanted):
                    break
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{request} stayed {response.text}")
                time.sleep(0.1)
            recorded.append({"request": request, "answer": answer_of(response, empty)})
    return recorded


def main() -> None:
    """Record and write."""
    with tempfile.TemporaryDirectory(prefix="connect-rest-") as name:
        folder = Path(name)
        (folder / "in.txt").write_text("one\ntwo\n")
        with (
            peers.kafka_node(folder / "kafka") as (bootstrap, _),
            peers.connect_worker(folder / "connect", bootstrap) as (url, _),
        ):
            recorded = record(url, folder)
    GOLDEN.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in recorded))
    print(f"{len(recorded)} answers of Apache Connect {peers.KAFKA_VERSION} in {GOLDEN.name}")


if __name__ == "__main__":
    main()
