"""Apache Connect and our worker on the same topics, one after the other, on our broker

Each is stopped and the other started with the same group and topics: connectors, target states, offsets and topics in
use are what they were, and records go on where they stopped.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks import peers
from tidemill import services

pytestmark = [
    pytest.mark.integration,
    pytest.mark.java,
    pytest.mark.kafka_peer,
    pytest.mark.timeout(300),
]

GROUP = "peer-connect"


def wait(url: str, path: str, wanted: Callable[[Any], bool], timeout_s: float = 90) -> Any:
    """The body of `path` once it is as wanted."""
    deadline = time.monotonic() + timeout_s
    content: Any = None
    while time.monotonic() < deadline:
        try:
            answer = httpx.get(url + path, timeout=30)
            content = answer.json()
            if answer.status_code == 200 and wanted(content):
                return content
        except httpx.TransportError as error:
            content = error
        time.sleep(0.1)
    raise AssertionError(f"{path} stayed {content}")


def state(wanted: str, tasks: int = 1) -> Callable[[Any], bool]:
    return lambda status: (
        [status["connector"]["state"]] + [each["state"] for each in status["tasks"]] == [wanted] * (1 + tasks)
    )


def position(wanted: int) -> Callable[[Any], bool]:
    return lambda found: [each["offset"] for each in found["offsets"]] == [{"position": wanted}]


def put(url: str, path: str, json: Any = None) -> None:
    answer = httpx.put(url + path, json=json, timeout=60)
    assert answer.is_success, answer.text


def our_worker(bootstrap: str, folder: Path) -> services.Service:
    settings = {f"{role}.storage.topic": f"{GROUP}-{role}" for role in ("config", "offset", "status")}
    settings |= {"group.id": GROUP, "offset.flush.interval.ms": "500"}
    return services.connect_worker("ours", bootstrap, settings=settings, log=folder / "ours.log")


def test_each_takes_over_from_the_other(tmp_path: Path, tidemill_broker_factory: Any) -> None:
    reason = peers.available()
    if reason:
        pytest.skip(f"Apache Connect cannot be started here: {reason}")
    bootstrap = tidemill_broker_factory().facts["address"]
    lines = tmp_path / "in.txt"
    lines.write_text("one\n")
    source = {"connector.class": "FileStreamSource", "file": str(lines), "topic": "lines"}
    sink = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out.txt"), "topics": "lines"}

    with peers.connect_worker(tmp_path / "peer", bootstrap) as (apache, _):
        put(apache, "/connectors/running/config", source)
        put(apache, "/connectors/a-paused-1/config", source | {"topic": "paused"})
        put(apache, "/connectors/a-paused-1/pause")
        put(apache, "/connectors/stopped/config", source | {"topic": "stopped"})
        put(apache, "/connectors/stopped/stop")
        put(apache, "/connectors/sink/config", sink)
        wait(apache, "/connectors/running/offsets", position(4))
        wait(apache, "/connectors/sink/offsets", lambda found: len(found["offsets"]) == 1)
        configs = {name: httpx.get(f"{apache}/connectors/{name}/config").json() for name in ("running", "sink")}

    with lines.open("a") as file:
        file.write("two\n")
    ours = our_worker(bootstrap, tmp_path).start()
    try:
        url = ours.facts["url"]
        assert set(httpx.get(f"{url}/connectors").json()) == {"running", "a-paused-1", "stopped", "sink"}
        for name, config in configs.items():
            assert httpx.get(f"{url}/connectors/{name}/config").json() == config
        wait(url, "/connectors/running/status", state("RUNNING"))
        wait(url, "/connectors/a-paused-1/status", state("PAUSED"))
        wait(url, "/connectors/stopped/status", state("STOPPED", tasks=0))
        wait(url, "/connectors/running/topics", lambda found: found == {"running": {"topics": ["lines"]}})
        wait(url, "/connectors/running/offsets", position(8))
        put(url, "/connectors/ours/config", source | {"topic": "ours"})
        wait(url, "/connectors/ours/offsets", position(8))
        put(url, "/connectors/a-paused-1/resume")
        wait(url, "/connectors/a-paused-1/status", state("RUNNING"))
    finally:
        ours.stop()

    with lines.open("a") as file:
        file.write("three\n")
    with peers.connect_worker(tmp_path / "peer", bootstrap) as (apache, _):
        for name in ("running", "a-paused-1", "ours"):
            wait(apache, f"/connectors/{name}/status", state("RUNNING"))
            wait(apache, f"/connectors/{name}/offsets", position(14))
        wait(apache, "/connectors/stopped/status", state("STOPPED", tasks=0))
        wait(apache, "/connectors/ours/topics", lambda found: found == {"ours": {"topics": ["ours"]}})
        wait(apache, "/connectors/sink/offsets", lambda found: found["offsets"][0]["offset"] == {"kafka_offset": 3})

    written = (tmp_path / "out.txt").read_text().split()
    assert list(dict.fromkeys(written)) == ["one", "two", "three"]
