"""`tidemill log` as people run it: on the folder of a real broker, whole and damaged."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.broker.broker_world import broker_and_client
from tests.broker.handlers.data_path import decoded, fetch, make_topic, produce, records
from tests.broker.quorum import kafka_records as kafka
from tidemill.broker.log.identity import read_topic_id
from tidemill.broker.tools.log_cli import app
from tidemill.broker.tools.repair import SIDE_FOLDER
from tidemill.core.ids import encode_id
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord
from tidemill.core.runtime.disk import OsDirectory, is_locked, lock_directory

runner = CliRunner()


def run(*arguments: str | Path) -> Result:
    result = runner.invoke(app, [str(each) for each in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with five batches of one record in t-0, stopped cleanly."""

    async def fill() -> None:
        async with broker_and_client(tmp_path) as (broker, client):
            topic = await make_topic(broker)
            for number in range(5):
                await produce(client, topic, records(b"value-%d" % number * 20))

    asyncio.run(fill())
    return tmp_path


def log_file(data: Path) -> Path:
    return data / "t-0" / "00000000000000000000.log"


def damage(path: Path, batch: int) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 5 * batch + 80] ^= 1
    path.write_bytes(content)


def tree(data: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


def test_a_sound_folder_verifies_and_needs_no_repair(data: Path) -> None:
    before = tree(data)
    result = run("verify", "--records", data)
    assert result.exit_code == 0, result.output
    assert "t-0: ok, offsets 0 to 5, 5 records in 5 batches, 1 segments" in result.stdout
    assert "__cluster_metadata-0: ok" in result.stdout
    result = run("repair", data)
    assert (result.exit_code, "t-0: nothing to repair" in result.stdout) == (0, True)
    assert run("dump", data).exit_code == 0
    assert tree(data) == before


def test_dump_prints_lines_for_people_and_for_programs(data: Path) -> None:
    text = run("dump", "--records", data).stdout
    assert "t-0/00000000000000000000.log batch position=0" in text
    assert 'value="value-0' in text
    assert "recovery-point-offset-checkpoint checkpoint" in text
    rows = [json.loads(line) for line in run("dump", "--json", data / "t-0").stdout.splitlines()]
    assert [row["base_offset"] for row in rows if row["kind"] == "batch"] == [0, 1, 2, 3, 4]
    assert {row["partition"] for row in rows} == {"t-0"}


def test_a_corrupt_batch_is_found_fenced_and_taken_out_on_request(data: Path) -> None:
    damage(log_file(data), 2)
    result = run("verify", data)
    assert result.exit_code == 1
    assert "t-0: BAD" in result.stdout
    assert "offset 2 cannot be read" in result.stdout
    rows = [json.loads(line) for line in run("verify", "--json", data).stdout.splitlines()]
    assert [row["ok"] for row in rows if row["partition"] == "t-0"] == [False]
    assert run("dump", data).exit_code == 1
    damaged = tree(data)
    for option in ("--dry-run", "--quarantine"):
        result = run("repair", "--dry-run", option, data)
        assert "would be repaired" in result.stdout
        assert tree(data) == damaged
    result = run("repair", data)
    assert result.exit_code == 1
    assert "left in place, never served" in result.stdout
    assert log_file(data).read_bytes() == damaged["t-0/00000000000000000000.log"]
    result = run("repair", "--quarantine", data)
    assert result.exit_code == 0, result.output
    assert run("verify", data).exit_code == 0
    (side,) = (data / "t-0" / SIDE_FOLDER).rglob("*.log@*")
    assert b"value-2" in side.read_bytes()

    async def consume() -> list[bytes | None]:
        async with broker_and_client(data) as (broker, client):
            return [record.value for record in decoded(await fetch(client, broker.controller.image.topics["t"]))]

    assert [value[:7] for value in asyncio.run(consume()) if value] == [b"value-0", b"value-1", b"value-3", b"value-4"]


def test_a_metadata_snapshot_is_dumped_and_verified(tmp_path: Path) -> None:
    async def fill() -> None:
        settings = {"metadata_log_max_record_bytes_between_snapshots": "1"}
        async with broker_and_client(tmp_path, **settings) as (broker, _):
            await make_topic(broker)
            while not snapshots():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def snapshots() -> list[Path]:
        return sorted((tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))

    asyncio.run(fill())
    newest = snapshots()[-1]
    dumped = run("dump", "--json", tmp_path)
    assert dumped.exit_code == 0, dumped.output
    rows = [json.loads(line) for line in dumped.stdout.splitlines()]
    kinds = [(row["kind"], row["control"]) for row in rows if row.get("file") == newest.name]
    assert kinds == [("batch", True), *[("batch", False)] * (len(kinds) - 2), ("batch", True)]
    verified = run("verify", tmp_path)
    assert verified.exit_code == 0, verified.output
    assert "__cluster_metadata-0: ok" in verified.stdout
    whole = newest.read_bytes()
    for damaged in (whole[:-5], whole[:80] + b"?" + whole[81:]):
        newest.write_bytes(damaged)
        verified = run("verify", tmp_path)
        assert verified.exit_code == 1
        assert re.search(rf"cluster metadata: BAD, .*{newest.name} is damaged", verified.stdout), verified.stdout
        assert run("dump", tmp_path).exit_code == 1
    newest.write_bytes(whole[: -len(whole) // 4])
    assert '"kind": "bad"' in run("dump", "--json", newest.parent).stdout


def test_a_log_with_the_gaps_of_compaction_is_whole_and_a_copy_needs_to_be_told(tmp_path: Path) -> None:
    async def fill() -> None:
        async with broker_and_client(tmp_path / "data") as (broker, client):
            settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.0", "segment_bytes": "1000"}
            topic = await make_topic(broker, **settings)
            for number in range(20):
                record = NewRecord(1_700_000_000_000, b"%d" % (number % 3), b"x" * 200)
                assert (await produce(client, topic, build_batch([record]))).error_code == 0
            await broker.logs.checkpoint()
            while await broker.cleaner.clean_dirtiest():
                pass

    asyncio.run(fill())
    result = run("verify", tmp_path / "data")
    assert result.exit_code == 0, result.output
    assert "t-0: ok, offsets 0 to 20, " in result.stdout
    assert ", 20 records" not in result.stdout
    shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "copy")
    assert run("verify", tmp_path / "copy").exit_code == 1
    for command in ("verify", "repair"):
        result = run(command, "--compacted", tmp_path / "copy")
        assert result.exit_code == 0, result.output
    checkpoint = run("dump", tmp_path / "data").stdout
    assert "cleaner-offset-checkpoint checkpoint" in checkpoint


def test_a_torn_tail_behind_the_recovery_point_is_cut_off_and_kept(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    content = log_file(data).read_bytes()
    log_file(data).write_bytes(content + content[:100])
    result = run("verify", data)
    assert (result.exit_code, "torn tail: 100 bytes" in result.stdout) == (1, True)
    result = run("repair", data)
    assert result.exit_code == 0, result.output
    assert "100 bytes kept aside" in result.stdout
    assert log_file(data).read_bytes() == content
    (side,) = (data / "t-0" / SIDE_FOLDER).rglob("*.log@*")
    assert side.read_bytes() == content[:100]


def test_lost_acknowledged_records_are_said_and_cannot_be_repaired(data: Path) -> None:
    content = log_file(data).read_bytes()
    log_file(data).write_bytes(content[: len(content) // 5 * 3])
    assert "acknowledged records are missing" in run("verify", data).stdout
    result = run("repair", data)
    assert (result.exit_code, "acknowledged records are missing: 3 to 4" in result.stdout) == (1, True)


def test_a_folder_in_use_may_be_looked_at_but_not_repaired(data: Path) -> None:
    assert not is_locked(data)
    held = lock_directory(OsDirectory(data))
    try:
        assert is_locked(data)
        result = run("verify", data)
        assert (result.exit_code, "a broker has this folder open" in result.stderr) == (0, True)
        for path in (data, data / "t-0"):
            result = run("repair", path)
            assert (result.exit_code, "stop it first" in result.stderr) == (2, True)
    finally:
        os.close(held)
    assert not is_locked(data)


@pytest.mark.parametrize("command", ["dump", "verify", "repair", "adopt"])
def test_what_is_no_log_is_one_line_and_status_two(tmp_path: Path, command: str) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        result = run(command, path)
        assert result.exit_code == 2
        assert result.stderr.startswith("tidemill log: ")
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/usr/bin/setpriv"), reason="root may read everything")
def test_a_folder_one_may_not_read_is_one_line(data: Path) -> None:
    (data / "t-0").chmod(0)
    try:
        command = [sys.executable, "-m", "tidemill.cli", "log", "verify", str(data)]
        if os.geteuid() == 0:
            for parent in (data, *data.parents[:2]):
                parent.chmod(0o755)
            command = ["setpriv", "--reuid=65534", "--clear-groups", "--", *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    finally:
        (data / "t-0").chmod(0o755)
    if "No module named" in done.stderr or "can't open" in done.stderr:
        pytest.skip("another user cannot start this Python")
    assert done.returncode == 2, done.stderr
    assert "Permission denied" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_is_found_and_explains_itself() -> None:
    command = [sys.executable, "-m", "tidemill.cli", "log", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    for word in ("dump", "verify", "repair", "adopt"):
        assert word in done.stdout


def test_adopt_takes_a_folder_of_kafkas_and_says_what(data: Path) -> None:
    topic_id = read_topic_id(OsDirectory(data / "t-0"))
    assert topic_id is not None
    count = len(list((data).glob("t-*")))
    values = [kafka.topic("t", topic_id), *(kafka.partition(number, topic_id) for number in range(count))]
    metadata = data / "__cluster_metadata-0"
    (metadata / "00000000000000000000.log").write_bytes(kafka.batch([*values, kafka.frame(14, 0, b"")]))
    (metadata / "quorum-state").write_bytes(b'{"currentVoters":[{"voterId":1}]}')
    before = tree(data)
    result = run("adopt", "--dry-run", data)
    assert result.exit_code == 0, result.output
    assert f"would be taken: topic t, id {encode_id(topic_id)}, partitions {count}\n" in result.stdout
    assert tree(data) == before
    descriptor = lock_directory(OsDirectory(data))
    try:
        result = run("adopt", data)
        assert (result.exit_code, "stop it first" in result.output) == (2, True)
    finally:
        os.close(descriptor)
    result = run("adopt", data)
    assert result.exit_code == 0, result.output
    assert "not taken: client quotas: 1 records" in result.stdout
    assert run("verify", data).exit_code == 0
    result = run("adopt", data)
    assert (result.exit_code, "already" in result.output) == (2, True)
