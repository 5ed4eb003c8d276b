"""A back-up of a cluster is put back while the mirror runs

Of the target: the copy becomes what the source is, without anybody's help and also when nothing new comes, and a mirror
that is restarted agrees. Of the source: the mirror stops at what is not the source's any more, says what to do, and
that helps.
"""

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.test_mirror_crash import (
    CATCH_UP_S,
    PARTITIONS,
    PROPERTIES,
    Load,
    ends,
    read_all,
    wait_caught_up,
)
from tidemill import services
from tidemill.free_ports import free_ports
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.crash, pytest.mark.timeout(300)]


class Stage(NamedTuple):
    """Two clusters and a mirror."""

    folder: Path
    a: Service
    b: Service
    mirror: Service
    load: Load

    @property
    def addresses(self) -> tuple[str, str]:
        return self.a.facts["address"], self.b.facts["address"]

    def back_up(self, broker: Service) -> None:
        """A copy of the folder, as the pages say."""
        broker.stop()
        shutil.copytree(self.folder / broker.name, self.folder / "copy")
        broker.restart()

    def put_back(self, broker: Service) -> None:
        """The disk was lost."""
        broker.kill()
        shutil.rmtree(self.folder / broker.name)
        shutil.copytree(self.folder / "copy", self.folder / broker.name)

    def write(self) -> None:
        """Some more records on A."""
        self.load.run(0.3)
        self.load.finish()

    def status(self) -> str:
        """What `mirror status` says."""
        command = [sys.executable, "-m", "tidemill.cli", "mirror", "status", str(self.folder / "mm2.properties")]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout

    def failed_orders(self) -> int:
        """Partitions of the topic that the mirror has given up; that of its heartbeats may be one as well."""
        return sum(" orders-" in line and " failed: " in line for line in self.status().splitlines())

    def is_exact(self) -> None:
        """The copy is the original."""
        a, b = self.addresses
        assert read_all(b, "A.orders") == read_all(a, "orders")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    ports = free_ports(2)
    a, b = (
        services.broker(
            name, tmp_path / name, listen=f"127.0.0.1:{port}", settings={}, log=tmp_path / f"{name}.log"
        ).start()
        for name, port in zip(("a", "b"), ports, strict=True)
    )
    file = tmp_path / "mm2.properties"
    file.write_text(PROPERTIES.format(a=a.facts["address"], b=b.facts["address"]))
    mirror = services.mirror("mirror", file, log=tmp_path / "mirror.log")
    try:
        admin = AdminClient({"bootstrap.servers": a.facts["address"]})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(30)
        mirror.start()
        yield Stage(tmp_path, a, b, mirror, Load(a.facts["address"], random.Random(3)))
    finally:
        for service in (mirror, a, b):
            service.stop()


def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + CATCH_UP_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


@contextmanager
def more_meanwhile(stage: Stage, is_busy: bool) -> Iterator[None]:
    """Records that come while the target is away, or none."""
    if is_busy:
        stage.load.run(0.3)
    yield
    if is_busy:
        stage.load.run(0.5)
    stage.load.finish()


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_a_target_that_was_put_back_is_filled_again(stage: Stage, is_busy: bool) -> None:
    stage.write()
    wait_caught_up(*stage.addresses)
    stage.back_up(stage.b)
    before = ends(stage.addresses[1], "A.orders")
    stage.write()
    wait_caught_up(*stage.addresses)
    assert sum(ends(stage.addresses[1], "A.orders")) > sum(before)
    with more_meanwhile(stage, is_busy):
        stage.put_back(stage.b)
        stage.b.restart()
    wait_caught_up(*stage.addresses)
    stage.is_exact()
    assert "was put back to an older state" in stage.mirror.output()
    stage.write()
    stage.mirror.stop()
    stage.mirror.restart()
    stage.write()
    wait_caught_up(*stage.addresses)
    stage.is_exact()


def test_a_source_that_was_put_back_is_told_and_what_is_told_helps(stage: Stage) -> None:
    a, b = stage.addresses
    stage.write()
    wait_caught_up(a, b)
    stage.back_up(stage.a)
    stage.write()
    wait_caught_up(a, b)
    copy = read_all(b, "A.orders")
    stage.put_back(stage.a)
    stage.a.restart()
    others = Load(a, random.Random(4))  # the earlier ones are ahead of what the cluster knows of them
    for _ in range(2):
        others.run(0.3)
        others.finish()
    until(lambda: stage.failed_orders() == PARTITIONS, stage.mirror.output)
    told = stage.status()
    assert "delete the target topic" in told or "re-create the target topic" in told, told
    assert read_all(b, "A.orders") == copy, "nothing is added to what is not the source's"
    admin = AdminClient({"bootstrap.servers": b})
    admin.delete_topics(["A.orders"])["A.orders"].result(30)
    wait_caught_up(a, b)
    stage.is_exact()
