"""Every way in which the warehouse job is stuck is told by name, and so is its end"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from benchmarks import peers
from tests.spark_sink.conftest import Topics, poll
from tests.spark_sink.debezium_events import SMALL, event, small_row
from tests.spark_sink.running_job import WAIT_S, Job
from tidemill import services
from tidemill.free_ports import free_port
from tidemill.services import Service

slow = [pytest.mark.integration, pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(1_800)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Service]:
    """A broker of the test's own, to be stopped, killed and started again."""
    listen = f"127.0.0.1:{free_port()}"
    service = services.broker("source", tmp_path / "broker", listen=listen, log=tmp_path / "broker.log").start()
    yield service
    service.stop()


class TestInSpark:
    pytestmark = slow

    @pytest.mark.crash
    def test_source_topic_and_table_go_away_and_come_back(
        self, broker: Service, tmp_path: Path, jobs: list[Job]
    ) -> None:
        """One job through all of it: a session of Spark is dear, and each state must end before the next begins."""
        topics, name, over = Topics(broker.facts["address"]), "late", "tidemill spark problem over: source, after"
        job = Job(tmp_path, topics, topics=name, topic__recreated="continue", metrics__listener="127.0.0.1:0")
        jobs.append(job)

        broker.kill()
        job.start()
        away = f"tidemill spark problem: source: {topics.bootstrap}: the cluster does not answer: "
        job.says(away, '"problem": "source')
        assert "the cluster does not answer" in job.waits_for["source"]
        broker.start()
        no_topic = f"tidemill spark problem: source: topic '{name}' does not exist at {topics.bootstrap}"
        job.says(no_topic)
        assert f"topic '{name}' does not exist" in job.waits_for["source"]
        assert job.is_live
        topics.create(name=name)
        topics.fill(name, [[small_row(1, "a")]])
        job.says(over, f"tidemill spark ready: {name} -> {job.table}", '"lag": 0')
        poll(lambda: job.names() == ["a"], "the first row", WAIT_S)
        poll(lambda: not job.waits_for, "readiness", WAIT_S)

        broker.kill()
        job.says(away, '"problem": "source')
        assert "source" in job.waits_for
        assert "tidemill_spark_lag_records{" not in job.asked("/metrics")[1]  # nobody knows it
        broker.start()
        job.says(over, '"problem": null')
        os.kill(broker.pid, signal.SIGSTOP)
        job.says("tidemill spark problem: source: ")
        os.kill(broker.pid, signal.SIGCONT)
        job.says(over)
        topics.fill(name, [[small_row(2, "b")]])
        poll(lambda: job.names() == ["a", "b"], "the second row", WAIT_S)

        elsewhere = job.table.rename(tmp_path / "elsewhere")
        job.table.write_text("in the way")
        topics.fill(name, [[small_row(3, "c")]])
        job.says("tidemill spark problem: table: ", '"problem": "table: ')
        assert job.is_live
        assert "table" in job.waits_for
        assert 'tidemill_spark_has_problem{where="table"} 1.0' in job.asked("/metrics")[1]
        job.table.unlink()
        elsewhere.rename(job.table)
        job.says("tidemill spark problem over: table, after")
        poll(lambda: job.names() == ["a", "b", "c"], "the third row", WAIT_S)

        topics.delete(name)
        job.says(no_topic)
        topics.create(name=name)
        topics.fill(name, [[small_row(4, "d")]])
        job.says(over)
        poll(lambda: job.names() == ["a", "b", "c", "d"], "the new topic's row", WAIT_S)
        job.terminate()
        assert job.wait() == 0

    def test_a_table_that_can_be_read_but_not_written_is_a_problem_until_it_takes_a_commit(
        self, topics: Topics, tmp_path: Path, jobs: list[Job]
    ) -> None:
        name = topics.create()
        topics.fill(name, [[small_row(1, "a")]])
        job = Job(tmp_path, topics, topics=name, restart__backoff__max__ms="1000").start()
        jobs.append(job)
        job.says('"lag": 0')
        DeltaTable(job.table).alter.set_table_properties({"delta.appendOnly": "true"})
        topics.fill(name, [[event("d", {"id": 1}, None, schema=SMALL), small_row(2, "b")]])
        problem, over = "tidemill spark problem: table: ", "tidemill spark problem over: table, after"
        job.says(problem)
        stuck_at = job.said.index(problem)
        for _ in range(3):
            job.says("the query failed and starts again")
        stuck = job.said[stuck_at:]
        assert stuck.count(problem) == 1
        assert over not in stuck
        assert '"lag"' not in stuck
        DeltaTable(job.table).alter.set_table_properties({"delta.appendOnly": "false"})
        job.says(over, '"problem": null', '"lag": 0')
        assert job.names() == ["b"]
        job.terminate()
        assert job.wait() == 0

    @pytest.mark.kafka_peer
    def test_a_wrong_password_and_a_right_that_is_missing(self, tmp_path: Path, jobs: list[Job]) -> None:
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        users = 'username="admin" password="secret" user_admin="secret" user_guest="secret"'
        settings = {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.plaintext.plain.sasl.jaas.config": f"{login} {users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
        }
        with peers.kafka_node(tmp_path / "kafka", settings=settings) as (address, _):
            security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.password": "secret"}
            topics = Topics(address, **security, **{"sasl.username": "admin"})
            name = topics.create()
            given = {f"kafka__{key.replace('.', '__')}": value for key, value in security.items()}
            job = Job(tmp_path, topics, topics=name, **given, kafka__sasl__username="admin")
            jobs.append(job)
            job.start(kafka__sasl__password="guessed")
            refused = f"{address}: the cluster refuses this client: "
            job.says(f"tidemill spark problem: source: {refused}", f"tidemill spark: {refused}")
            assert job.wait() == 3
            job.start(kafka__sasl__username="guest")
            job.says(f"tidemill spark problem: source: {refused}", f"tidemill spark: {refused}")
            assert job.wait() == 3
