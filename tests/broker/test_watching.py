"""What a broker says of itself while it starts, serves, fails, hangs and stops; asked over a real socket."""

import asyncio
import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.broker.broker_world import running_broker, wire_client
from tests.broker.handlers.data_path import make_topic, produce, records
from tidemill.broker import watching
from tidemill.broker.log.checkpoints import CLEAN_SHUTDOWN
from tidemill.broker.log.store import Opening
from tidemill.broker.node import StartRefused
from tidemill.broker.watching import ROOM_BYTES, Life, Watch, no_room, starting
from tidemill.core.error_code import ErrorCode
from tidemill.core.runtime.disk_space import DiskSpace
from tidemill.core.runtime.probe import LoopSilent, Reason
from tidemill.free_ports import free_port

READY = (200, {"status": "ready"})
LIVE = (200, {"status": "live"})


def get(port: int, path: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/{path}", timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as answer:
        return answer.code, json.loads(answer.read())


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


async def health(port: int, path: str) -> tuple[int, dict[str, object]]:
    """Asked from another thread: the broker's loop is this one."""
    return await asyncio.to_thread(get, port, path)


def reasons(answer: tuple[int, dict[str, object]]) -> list[dict[str, str]]:
    status, said = answer
    assert (status, said["status"]) == (503, "not ready")
    found = said["reasons"]
    assert isinstance(found, list)
    return found


async def test_a_broker_that_serves_is_alive_and_ready_and_says_nothing_once_it_is_closed(tmp_path: Path) -> None:
    port = free_port()
    async with running_broker(tmp_path, metrics_listener=f"127.0.0.1:{port}") as broker:
        await make_topic(broker, "t", partitions=3)
        assert await health(port, "live") == LIVE
        assert await health(port, "ready") == READY
    with pytest.raises(OSError, match="refused"):
        await health(port, "live")


async def test_a_broker_that_is_told_to_stop_is_alive_and_not_ready(tmp_path: Path) -> None:
    port = free_port()
    async with running_broker(tmp_path, metrics_listener=f"127.0.0.1:{port}") as broker:
        broker.stop.set()
        assert reasons(await health(port, "ready")) == [{"what": "broker", "why": "it is about to stop"}]
        assert await health(port, "live") == LIVE


async def test_a_partition_without_a_log_is_offline_and_a_deleted_topic_is_not(tmp_path: Path) -> None:
    port = free_port()
    async with running_broker(tmp_path, metrics_listener=f"127.0.0.1:{port}") as broker:
        await make_topic(broker, "well")
        await broker.logs.delete("well")  # the files went, the topic is still there
        (reason,) = reasons(await health(port, "ready"))
        assert reason["what"] == "partitions"
        assert reason["why"].startswith("1 offline, well-0 among them")
        assert await health(port, "live") == LIVE
        await broker.following.make_missing_logs()
        assert await health(port, "ready") == READY


async def test_a_folder_that_fails_is_told_until_the_broker_is_gone(tmp_path: Path) -> None:
    port = free_port()
    async with running_broker(tmp_path, metrics_listener=f"127.0.0.1:{port}") as broker, wire_client(broker) as client:
        topic = await make_topic(broker, segment_bytes="100")
        await produce(client, topic, records(b"x"))
        (tmp_path / "t-0" / "00000000000000000001.log").mkdir()  # where the next segment will be
        await produce(client, topic, records(b"x"))
        failed, stopping = reasons(await health(port, "ready"))
        assert failed["what"] == f"log directory {tmp_path}"
        assert failed["why"].startswith("offline: ")
        assert stopping["why"] == "it is about to stop"
        assert await health(port, "live") == LIVE


async def test_a_full_disk_is_told_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port, room = free_port(), DiskSpace(total_bytes=2**30, usable_bytes=2**29)
    async with running_broker(tmp_path, metrics_listener=f"127.0.0.1:{port}") as broker, wire_client(broker) as client:
        topic = await make_topic(broker)

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as disk:
            disk.setattr(os, "pwrite", full)
            disk.setattr(watching, "disk_space", lambda _path: room._replace(usable_bytes=0))
            assert (await produce(client, topic, records(b"x"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            (reason,) = reasons(await health(port, "ready"))
            assert reason["what"] == f"log directory {tmp_path}"
            assert reason["why"].startswith("no space left, appends to t-0 were refused")
            assert await health(port, "live") == LIVE
        assert await health(port, "ready") == READY, "there is room, though nobody has tried yet"
        assert (await produce(client, topic, records(b"x"))).error_code == 0
        assert await health(port, "ready") == READY


async def test_a_quota_is_a_full_disk_however_much_room_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    async with running_broker(tmp_path, metrics_listener=f"127.0.0.1:{port}") as broker, wire_client(broker) as client:
        topic = await make_topic(broker)

        def full(*_: object) -> int:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

        monkeypatch.setattr(watching, "disk_space", lambda _path: DiskSpace(total_bytes=2**40, usable_bytes=2**39))
        with monkeypatch.context() as disk:
            disk.setattr(os, "pwrite", full)
            assert (await produce(client, topic, records(b"x"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            for _ in range(2):  # whoever asks
                (reason,) = reasons(await health(port, "ready"))
                assert reason["why"].startswith("no space left, appends to t-0 were refused")
        assert (await produce(client, topic, records(b"x"))).error_code == 0
        assert await health(port, "ready") == READY


async def test_an_address_that_cannot_be_had_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        says = rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use; .* with metrics\.listener=HOST:PORT"
        with pytest.raises(StartRefused, match=says):
            async with running_broker(tmp_path, metrics_listener=f"127.0.0.1:{port}"):
                pass
    with pytest.raises(StartRefused, match=r"cannot listen on nowhere\.invalid:9404: .*; choose an address"):
        async with running_broker(tmp_path, metrics_listener="nowhere.invalid:9404"):
            pass
    async with running_broker(tmp_path):
        pass  # nothing was left locked


@contextmanager
def stalled(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    go_on = threading.Event()
    loop.call_soon_threadsafe(go_on.wait)
    try:
        yield
    finally:
        go_on.set()


def test_a_loop_that_hangs_is_death_only_while_the_broker_should_serve(
    threaded_loop: asyncio.AbstractEventLoop,
) -> None:
    watch = Watch(threaded_loop, "/data", patience_s=0.2)
    with stalled(threaded_loop):
        assert watch.probe.live() is None, "it starts: recovery keeps the loop busy"
        with watch.running(), pytest.raises(LoopSilent):
            watch.probe.live()
        assert watch.probe.live() is None, "it stops: so do the files that are closed"
    with watch.running():
        assert watch.probe.live() is None


def test_a_start_says_how_far_it_is() -> None:
    watch = Watch(asyncio.new_event_loop(), "/data")
    assert watch.life is Life.STARTING
    assert watch.probe.ready() == [starting("/data", None)]
    assert starting("/data", Opening(3, 9)) == Reason(
        what="log directory /data", why="recovering: 3 of 9 partitions are open"
    )
    assert starting("/data", Opening(9, 9)).what == "broker"


def test_little_is_counted_until_the_broker_serves(tmp_path: Path) -> None:
    watch = Watch(asyncio.new_event_loop(), str(tmp_path))
    assert watch.probe.metrics is not None
    text = watch.probe.metrics().decode()
    assert [line for line in text.splitlines() if "brokerstate" in line][-1].endswith(" 1")
    assert text.count("# TYPE") == 5
    nowhere = Watch(asyncio.new_event_loop(), str(tmp_path / "not-yet"))
    assert nowhere.probe.metrics is not None
    assert b"_disk_" not in nowhere.probe.metrics()


async def test_a_part_that_raises_costs_its_own_metrics_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    async with running_broker(tmp_path, metrics_listener=f"127.0.0.1:{port}") as broker:
        await make_topic(broker)
        monkeypatch.setattr(broker.groups, "group_ids", lambda: None)  # as a mistake of ours would have it
        with capture_logs() as lines:
            pages = [await asyncio.to_thread(scraped, port) for _ in range(2)]
    for count, page in enumerate(pages, 1):
        assert f'tidemill_metrics_part_errors_total{{part="groups"}} {count}\n' in page
        assert 'tidemill_metrics_part_errors_total{part="logs"} 0\n' in page
        assert 'kafka_log_log_size{topic="t",partition="0"} 0\n' in page
        assert "kafka_server_socket_server_metrics_connection_count" in page
        assert "kafka_coordinator_group_groupmetadatamanager_numgroups" not in page
    (told,) = [line for line in lines if line["event"] == "metrics of a part cannot be told"]
    assert told["part"] == "groups"


def test_a_disk_that_cannot_be_asked_is_an_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_path: str) -> DiskSpace:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(watching, "disk_space", broken)
    watch = Watch(asyncio.new_event_loop(), str(tmp_path))
    assert watch.probe.metrics is not None
    text = watch.probe.metrics().decode()
    assert "kafka_server_kafkaserver_brokerstate 1\n" in text
    assert 'tidemill_metrics_part_errors_total{part="disk"} 1\n' in text


def test_a_disk_is_full_until_there_is_room_again() -> None:
    assert list(no_room("/data", [], 0)) == []
    assert list(no_room("/data", ["t-0"], ROOM_BYTES)) == []
    (reason,) = no_room("/data", ["t-0"], ROOM_BYTES - 1)
    assert (
        reason.why
        == "no space left, appends to t-0 were refused; free some (a quota, inodes?), they go on by themselves"
    )


@pytest.mark.integration
async def test_a_loop_that_hangs_in_a_real_broker(tmp_path: Path) -> None:
    port = free_port()
    answers: list[tuple[int, dict[str, object]]] = []
    async with running_broker(tmp_path, metrics_listener=f"127.0.0.1:{port}"):
        asked = threading.Thread(target=lambda: answers.append(get(port, "live")))
        asked.start()
        asked.join()  # on the loop, which hangs until it is told to be dead
        assert await health(port, "live") == LIVE
    assert answers == [(503, {"status": "not live", "why": "the event loop has not answered for 5 s"})]


PARTITIONS = 20
BATCHES = 1_500


def crashed_folder(folder: Path) -> None:
    """A folder as a crash leaves it, with many segments that have to be gone over."""

    async def fill() -> None:
        async with running_broker(folder, flush_policy="os") as broker, wire_client(broker) as client:
            topic = await make_topic(broker, partitions=PARTITIONS, segment_bytes="20000")
            for _ in range(BATCHES):
                await produce(client, topic, records(b"x"))

    asyncio.run(fill())
    (folder / CLEAN_SHUTDOWN).unlink()
    for checkpoint in folder.glob("*-checkpoint"):
        checkpoint.unlink()
    full = folder / "t-0"
    for index in full.glob("*index"):
        index.unlink()
    for number in range(1, PARTITIONS):
        other = folder / f"t-{number}"
        shutil.copyfile(other / "partition.metadata", folder / "kept")
        shutil.rmtree(other)
        shutil.copytree(full, other)
        shutil.move(folder / "kept", other / "partition.metadata")


@pytest.mark.integration
def test_recovery_is_told_as_it_goes_and_the_broker_is_alive_all_the_while(tmp_path: Path) -> None:
    crashed_folder(tmp_path)
    port = free_port()
    command = [sys.executable, "-m", "tidemill.cli", "broker", "start", "--data", str(tmp_path), "--log-format", "json"]
    command += ["--listen", "127.0.0.1:0", "--set", f"metrics.listener=127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert any(json.loads(line)["event"] == "watched" for line in process.stderr)
        draining = threading.Thread(target=process.stderr.read)
        draining.start()
        seen: list[int] = []
        while (answer := get(port, "ready")) != READY:
            assert get(port, "live") == LIVE
            (reason,) = reasons(answer)
            found = re.fullmatch(rf"recovering: (\d+) of {PARTITIONS} partitions are open", reason["why"])
            seen += [int(found[1])] if found else []
        assert seen == sorted(seen)
        assert len(set(seen)) > 2, "it was asked often enough to see it go on"
        process.terminate()
        assert process.wait(30) == 0
        draining.join()
    finally:
        process.kill()
        process.wait()
