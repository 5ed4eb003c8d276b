"""The broker's image under testcontainers, where an engine answers and the image was built (make deploy-test)"""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.deploy.engine import EngineMissing, docker_api, find_engine
from tidemill.free_ports import free_port

pytestmark = [pytest.mark.integration, pytest.mark.deploy, pytest.mark.timeout(300)]


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The image, and testcontainers pointed at the engine that has it."""
    from tidemill.testing.broker_container import IMAGE

    try:
        engine = find_engine(tmp_path)
    except EngineMissing as error:
        pytest.skip(str(error))
    if engine("image", "inspect", IMAGE, check=False).returncode != 0:
        pytest.skip(f"{IMAGE} has not been built: make deploy-test does it")
    with docker_api(engine, tmp_path) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield IMAGE


def test_a_broker_that_will_not_start_says_why(image: str) -> None:
    from tidemill.testing.broker_container import BrokerEnded, TidemillContainer

    with pytest.raises(BrokerEnded, match=r"^tidemill broker: .*num\.partitions"):
        TidemillContainer(image, settings={"num.partitions": "many"}).__enter__()


def test_a_port_that_somebody_took_meanwhile(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemill.testing import broker_container

    with socket.create_server(("", 0)) as taken:
        ports = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(broker_container, "free_port", lambda: next(ports))
        with broker_container.TidemillContainer(image) as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            assert len(admin.list_topics(timeout=30).brokers) == 1


def test_a_broker_of_the_image(image: str) -> None:
    from tidemill.testing import TidemillContainer

    with TidemillContainer(image, settings={"num.partitions": "3"}) as broker:
        address = {"bootstrap.servers": broker.bootstrap_servers}
        producer = Producer(address)
        producer.produce("t", b"hello")
        assert producer.flush(30) == 0
        consumer = Consumer({**address, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        message = consumer.poll(30)
        consumer.close()
        assert message is not None and message.value() == b"hello"
        admin = AdminClient(address)
        assert len(admin.list_topics("t").topics["t"].partitions) == 3
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        (found,) = admin.describe_configs([resource]).values()
        assert found.result(30)["num.partitions"].value == "3"
