"""A first day with deploy/README.md: every command of the page, the three tables compared, every container killed"""

import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.deploy.conftest import Images, Note
from tests.deploy.deployment import PROJECT, SERVICES, Deployment, commands_by_heading, eventually
from tests.deploy.engine import Engine, HealthTimer
from tests.integration.test_pipeline_crash import records
from tidemill.demo.compare import Comparison, compare, read_source, read_warehouse
from tidemill.demo.load import TABLE, Load

pytestmark = [pytest.mark.integration, pytest.mark.deploy, pytest.mark.timeout(1_500)]

EQUAL_TIMEOUT_S = 300  # a machine with other work takes its time; alone it is seconds
CHANGES_BEFORE_KILL, CHANGES, RATE_PER_S = 150, 900, 150
TOPIC, MIRRORED_TOPIC = "shop.public.orders", "east.shop.public.orders"


@pytest.fixture(scope="module")
def deployment(engine: Engine, images: Images) -> Iterator[Deployment]:
    found = engine("volume", "ls", "-q").stdout.split()
    if any(name.startswith(f"{PROJECT}_") for name in found):
        pytest.skip(f"this machine has a deployment named {PROJECT}, which the test would take for its own")
    started = Deployment(engine, images.folder / "deploy", images.base, images.postgres)
    try:
        with HealthTimer(engine, f"com.docker.compose.project={PROJECT}"):
            yield started
    finally:
        started.remove()


@pytest.fixture(scope="module")
def page(deployment: Deployment) -> dict[str, list[str]]:
    """The page's commands by heading."""
    return commands_by_heading((deployment.folder / "README.md").read_text(encoding="utf-8"))


def equal(deployment: Deployment) -> Comparison:
    """Wait until source table and warehouse table are equal."""

    def ask() -> Comparison:
        source = read_source(deployment.dsn, TABLE)
        result = compare(source, read_warehouse(deployment.volume("warehouse") / "tables" / "orders"))
        assert result.equal, (result.differences, {name: deployment.state(name) for name in SERVICES})
        return result

    return eventually(ask, EQUAL_TIMEOUT_S)


def topics_equal(deployment: Deployment) -> int:
    """Wait until both topics hold the same records; returns how many."""

    def ask() -> int:
        captured = records(f"127.0.0.1:{deployment.ports.east}", TOPIC)
        assert captured == records(f"127.0.0.1:{deployment.ports.west}", MIRRORED_TOPIC)
        return sum(map(len, captured.values()))

    return eventually(ask, EQUAL_TIMEOUT_S)


def test_the_first_start(deployment: Deployment, page: dict[str, list[str]], note: Note) -> None:
    settings, start, capture, changes = page["First start"]
    deployment.run(settings)
    begin = time.monotonic()
    deployment.run(start)
    deployment.wait_ready("postgres", "east", "west", "connect", "mirror")
    note.timed("compose up, all ready", begin)
    deployment.run(capture)
    shown = deployment.until(changes)
    assert "Ada" in shown
    note.timed("first rows in the warehouse", begin)
    assert equal(deployment).source_rows == 2


def test_settings_and_what_to_watch(deployment: Deployment, page: dict[str, list[str]]) -> None:
    (in_force,) = page["Settings"]
    shown = deployment.run(in_force).stdout
    assert "advertised.listeners=PLAINTEXT://east:9092,OUTSIDE://localhost:" in shown
    assert "east->west.topics = shop" in shown
    (watch,) = page["What to watch"]
    assert "RUNNING" in deployment.run(watch).stdout


@pytest.mark.parametrize("service", SERVICES)
def test_all_is_equal_after_a_kill_under_load(deployment: Deployment, note: Note, service: str) -> None:
    load = Load(deployment.dsn, seed=SERVICES.index(service))
    load.pace(RATE_PER_S)
    load.start(CHANGES)
    eventually(lambda: enough(load), 60, 0.02)
    begin = time.monotonic()
    deployment.kill(service)
    if service == "postgres":
        with pytest.raises(psycopg.Error):
            load.wait()
        eventually(lambda: psycopg.connect(deployment.dsn).close(), EQUAL_TIMEOUT_S)
        load = Load(deployment.dsn, seed=99)
        load.start(CHANGES)
    load.wait()
    assert equal(deployment).source_rows > 0
    topics_equal(deployment)
    note.timed(f"killed {service}, all equal", begin)


def enough(load: Load) -> None:
    """Raises AssertionError until the load is in the midst of its work."""
    assert load.progress.changes >= CHANGES_BEFORE_KILL


def test_back_up_and_restore(deployment: Deployment, page: dict[str, list[str]]) -> None:
    back_up, restore = page["Back-up and restore"]
    deployment.run(back_up)
    assert (deployment.folder / "west.tar.gz").stat().st_mode & 0o077 == 0, "nobody else reads the data"
    count = topics_equal(deployment)
    Load(deployment.dsn, seed=7).start(200).wait()
    deployment.run(restore)
    equal(deployment)
    assert topics_equal(deployment) > count


def test_upgrade(deployment: Deployment, page: dict[str, list[str]]) -> None:
    (upgrade,) = page["Upgrade"]
    deployment.run(upgrade)
    Load(deployment.dsn, seed=8).start(100).wait()
    equal(deployment)


def test_stop_and_remove(deployment: Deployment, page: dict[str, list[str]]) -> None:
    deployment.run("docker compose stop")
    statuses = {name: deployment.state(name)["ExitCode"] for name in SERVICES}
    assert statuses == dict.fromkeys(SERVICES, 0)
    (stop,) = page["Stop, and remove"]
    deployment.run(stop)
    assert not deployment.engine("ps", "-aq", "--filter", f"label=com.docker.compose.project={PROJECT}").stdout


def test_no_command_of_the_page_was_left_out(page: dict[str, list[str]]) -> None:
    run_above = {"First start": 4, "Settings": 1, "What to watch": 1, "Upgrade": 1, "Back-up and restore": 2}
    by_hand = {"Three brokers": 3}  # another project, on the same ports
    found = {heading: len(blocks) for heading, blocks in page.items() if blocks}
    assert found == {**run_above, **by_hand, "Stop, and remove": 1}
