"""Whoever is told to stop does so while the cluster is gone and nobody answers who that was

A container's name goes with the container, and where everything is stopped at once the names of the brokers go first:
each look-up then takes as long as the resolver waits. Clients wait for the look-ups they have begun.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidemill import services
from tidemill.free_ports import free_ports
from tidemill.services import Service

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NAME = "cluster.test"
GRACE_S = 60  # half of what a look-up takes
START_TIMEOUT_S = 150  # Spark takes its time
NOTICE_S = 3.0  # for the clients to begin look-ups

MM2_PROPERTIES = """\
clusters = east, west
east.bootstrap.servers = {east}
west.bootstrap.servers = {west}
east->west.enabled = true
replication.factor = 1
"""


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, and without one no look-up that hangs")
    library = tmp_path_factory.mktemp("preload") / "stuck_lookup.so"
    source = Path(__file__).with_name("stuck_lookup.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    """Two clusters whose clients are told a name."""
    east, west = (broker(tmp_path, name, port) for name, port in zip(("east", "west"), free_ports(2), strict=True))
    try:
        yield east.start(), west.start()
    finally:
        east.kill()
        west.kill()


def broker(folder: Path, name: str, port: int) -> Service:
    settings = {"advertised.listeners": f"PLAINTEXT://{NAME}:{port}"}
    listen = f"127.0.0.1:{port}"
    return services.broker(name, folder / name, listen=listen, settings=settings, log=folder / f"{name}.log")


def connect_worker(folder: Path, east: str, west: str, environ: dict[str, str]) -> Service:
    return services.connect_worker("connect", east, log=folder / "connect.log", environ=environ)


def mirror(folder: Path, east: str, west: str, environ: dict[str, str]) -> Service:
    properties = folder / "mm2.properties"
    properties.write_text(MM2_PROPERTIES.format(east=east, west=west))
    return services.mirror("mirror", properties, log=folder / "mirror.log", environ=environ)


def spark(folder: Path, east: str, west: str, environ: dict[str, str]) -> Service:
    create = [sys.executable, "-m", "tidemill.cli", "topic", "create", "orders", "-b", west]
    subprocess.run(create, env={**os.environ, **environ}, check=True)
    properties = folder / "spark.properties"
    table = folder / "table"
    properties.write_text(f"name=wh\nbootstrap.servers={west}\ntopics=orders\ntable.path={table}\n")
    return services.spark_job("spark", properties, log=folder / "spark.log", environ=environ)


Make = Callable[[Path, str, str, dict[str, str]], Service]


@pytest.mark.parametrize("make", [connect_worker, mirror, spark], ids=["connect", "mirror", "spark"])
def test_a_stop_does_not_wait_for_names(
    brokers: tuple[Service, Service], preload: Path, tmp_path: Path, make: Make
) -> None:
    stuck = tmp_path / "stuck"
    environ = {"LD_PRELOAD": str(preload), "STUCK_LOOKUP": str(stuck)}
    part = make(tmp_path, *(f"{NAME}:{each.facts['port']}" for each in brokers), environ)
    try:
        part.start(START_TIMEOUT_S)
        stuck.touch()
        for each in brokers:
            each.kill()
        time.sleep(NOTICE_S)
        assert part.stop(GRACE_S) == 0, part.tail()
    finally:
        part.kill()
