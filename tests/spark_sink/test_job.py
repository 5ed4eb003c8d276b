"""The warehouse job under kill -9, rivals, lost checkpoints and bad input: the table equals the source in the end"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from tests.spark_sink.conftest import Topics, planners_below, poll, python_paths_below
from tests.spark_sink.debezium_events import Message, Shop, small_row
from tests.spark_sink.running_job import WAIT_S, Job

slow = [pytest.mark.integration, pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(1_800)]


class TestInSpark:
    pytestmark = slow

    @pytest.mark.crash
    def test_kill_9_at_random_points_of_the_load(self, topics: Topics, tmp_path: Path, jobs: list[Job]) -> None:
        """Every run finds records to work on; it or its JVM dies a random while after it was seen to get so far."""
        shop, pick = Shop(seed=11, keys=400), random.Random(5)
        logs = shop.load(4_000, partitions=2)
        name = topics.create(partitions=2)
        job = Job(tmp_path, topics, topics=name)
        jobs.append(job)
        files = version = 0  # as of the start of a run
        seen: dict[str, Callable[[], object]] = {
            "its query": lambda: True,
            "a file that no commit lists yet": lambda: job.data_files() > files,
            "a commit": lambda: job.version > version,
        }
        for number, (what, reached) in enumerate(seen.items()):
            topics.fill(name, [log[len(log) * number // 3 : len(log) * (number + 1) // 3] for log in logs])
            files, version = job.data_files(), job.version
            job.start(max__offsets__per__trigger=("150", "37", "1000")[number])  # another batch size every time
            job.says("tidemill spark ready:")
            java = java_below(job.pid)
            poll(reached, what, WAIT_S, pause_s=0.005)
            time.sleep(pick.choice((0, pick.uniform(0, 0.05), pick.uniform(0, 2))))
            if number < 2:
                job.kill()
                poll(lambda java=java: not lives(java), "the end of a dead job's JVM", WAIT_S)  # type: ignore[misc]
            else:
                os.kill(java, signal.SIGKILL)
                assert job.wait() == 1
                job.says("tidemill spark: the Spark JVM is gone")
        job.start().says('"lag": 0')
        assert job.rows() == shop.rows  # what does not lag is in the table
        assert not any("pyspark.zip" in path for path in python_paths_below(job.pid))  # each would compile it anew
        job.terminate()
        assert job.wait() == 0

    @pytest.mark.crash
    def test_a_hung_query_and_a_hung_jvm_end_the_job_which_then_goes_on(
        self, topics: Topics, tmp_path: Path, jobs: list[Job]
    ) -> None:
        shop = Shop(seed=6)
        (log,) = shop.load(200, partitions=1)
        name = topics.create()
        topics.fill(name, [log[:100]])
        job = Job(tmp_path, topics, topics=name, stall__timeout__ms="60000").start()
        jobs.append(job)

        def supervised(reached: Callable[[], object], what: str) -> None:
            """Wait for it; where the machine is so slow that a start looks like a standstill, start again."""

            def has_it() -> object:
                if job.has_ended and not reached():
                    assert job.wait() == 1
                    job.start()
                return reached()

            poll(has_it, what, WAIT_S)

        supervised(lambda: job.version >= 1, "a commit")
        java = java_below(job.pid)
        for planner in planners_below(job.pid):
            os.kill(planner, signal.SIGSTOP)  # it never answers the JVM again, which waits without a time limit
        topics.fill(name, [log[100:]])
        assert job.wait() == 1
        assert "records wait and the query has not moved for" in job.said
        poll(lambda: not lives(java), "the JVM's end", WAIT_S)
        job.start()
        supervised(lambda: job.rows() == shop.rows, "equality")
        java = java_below(job.pid)
        os.kill(java, signal.SIGSTOP)
        assert job.wait() == 1
        job.says("tidemill spark: the Spark JVM has not answered for 60 s")
        poll(lambda: not lives(java), "the JVM's end", WAIT_S)

    def test_a_writer_that_wakes_up_after_its_successor_stops(
        self, topics: Topics, tmp_path: Path, jobs: list[Job]
    ) -> None:
        shop = Shop(seed=4, keys=60)
        (log,) = shop.load(600, partitions=1)
        name = topics.create()
        topics.fill(name, [log[:200]])
        old, new = Job(tmp_path, topics, topics=name), Job(tmp_path, topics, topics=name)
        jobs += [old, new]
        old.start()
        poll(lambda: old.version >= 1, "the first job's commit", WAIT_S)
        new.start()
        new.says("tidemill spark ready:")
        os.killpg(old.pid, signal.SIGSTOP)
        before = new.version
        topics.fill(name, [log[200:400]])
        poll(lambda: new.version > before, "the second job's commit", WAIT_S)
        os.killpg(old.pid, signal.SIGCONT)
        topics.fill(name, [log[400:]])
        assert old.wait() == 3
        assert "another job named 'wh' writes table" in old.said
        poll(lambda: new.rows() == shop.rows, "equality", WAIT_S)
        new.terminate()
        assert new.wait() == 0

    def test_a_record_that_is_no_change_stops_it_with_one_line(
        self, topics: Topics, tmp_path: Path, jobs: list[Job]
    ) -> None:
        shop = Shop(seed=9)
        logs = shop.load(40, partitions=1)
        logs[0].insert(17, Message(b"{}", b"no change at all"))
        name = topics.create()
        topics.fill(name, logs)
        job = Job(tmp_path, topics, topics=name, trigger__available__now="true").start()
        jobs.append(job)
        assert job.wait() == 3
        (line,) = [line for line in job.said.splitlines() if line.startswith("tidemill spark: ")]
        assert f"{name}-0: the record at offset 17 is not a Debezium change event" in line
        assert job.rows() == []
        job.start(errors__tolerance="all")
        assert job.wait() == 0
        assert job.rows() == shop.rows

    def test_a_topic_that_does_not_exist_ends_a_job_that_reads_what_is_there(
        self, topics: Topics, tmp_path: Path, jobs: list[Job]
    ) -> None:
        job = Job(tmp_path, topics, topics="no-such-topic", trigger__available__now="true").start()
        jobs.append(job)
        assert job.wait() == 3
        *_, line = job.said.splitlines()
        assert line == (
            f"tidemill spark: topic 'no-such-topic' does not exist at {topics.bootstrap}; with trigger.available.now "
            "the job does not wait for it"
        )

    def test_latest_is_found_once_and_holds_from_then_on(self, topics: Topics, tmp_path: Path, jobs: list[Job]) -> None:
        name = topics.create(partitions=2)
        topics.fill(name, [[small_row(1, "before")], [small_row(2, "before")]])
        job = Job(tmp_path, topics, topics=name, starting__offsets="latest").start()
        jobs.append(job)
        job.says("tidemill spark ready:")
        job.kill()  # it has read nothing yet
        topics.admin.create_partitions([NewPartitions(name, 3)])[name].result()
        poll(lambda: len(topics.admin.list_topics(name, timeout=10).topics[name].partitions) == 3, "the partition")
        topics.fill(name, [[small_row(3, "meanwhile")], [], [small_row(4, "new partition")]])
        job.start()
        expected = [{"id": 3, "Name": "meanwhile"}, {"id": 4, "Name": "new partition"}]
        poll(lambda: job.rows() == expected, "what came after the first start", WAIT_S)
        topics.fill(name, [[], [small_row(5, "later")]])
        poll(lambda: [each["id"] for each in job.rows()] == [3, 4, 5], "the rest", WAIT_S)


def java_below(pid: int) -> int:
    """The JVM that a job started."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    found = [child for child in children if "java" in os.path.basename(os.readlink(f"/proc/{child}/exe"))]
    (java,) = found
    return java


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
