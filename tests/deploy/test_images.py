"""What is in the images and how they run: not root, nothing writable but the volume, a clean end"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.deploy.conftest import Images
from tests.deploy.engine import Engine

pytestmark = [pytest.mark.integration, pytest.mark.deploy, pytest.mark.timeout(1_500)]

BROKER_BYTES_MAX = 150_000_000
TIGHT = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
CONNECT = {"TIDEMILL_CONNECT_BOOTSTRAP_SERVERS": "broker:9092"}
SPARK = {"TIDEMILL_SPARK_BOOTSTRAP_SERVERS": "broker:9092", "TIDEMILL_SPARK_TOPICS": "t"}
MIRROR = {
    "TIDEMILL_MIRROR_CLUSTERS": "a,b",
    "TIDEMILL_MIRROR_A_BOOTSTRAP_SERVERS": "broker:9092",
    "TIDEMILL_MIRROR_B_BOOTSTRAP_SERVERS": "other:9092",
    "TIDEMILL_MIRROR_A__B_ENABLED": "true",
}


def test_the_broker_is_small(engine: Engine, images: Images) -> None:
    assert engine.image_bytes(images.names["broker"]) - engine.image_bytes(images.base) <= BROKER_BYTES_MAX


@pytest.mark.parametrize("target", ["broker", "connect", "mirror", "spark"])
def test_what_is_inside(engine: Engine, images: Images, target: str) -> None:
    look = (
        "id -u; command -v gcc cc make pip pip3; test -e /usr/lib/python3/dist-packages/pip && echo pip; find / -xdev "
    )
    look += r"\( -path /proc -o -path /sys \) -prune -o -type f -writable -print 2>/dev/null; true"
    said = engine("run", "--rm", "--entrypoint", "sh", images.names[target], "-c", look).stdout
    assert said.split() == ["10001"], "neither root, nor a build tool, nor a file that the process may write"
    kernel = "import tidemill.spark_sink.kernel_build as k; print(k.LIBRARY.exists())"
    said = engine("run", "--rm", "--entrypoint", "python", images.names[target], "-c", kernel).stdout
    assert said == "True\n", "the compiled kernel is in"
    image = engine.inspect("image", images.names[target])
    config = image["Config"]
    check = image.get("Healthcheck") or config["Healthcheck"]  # podman's place, and Docker's
    assert check["Test"][:3] == ["CMD", "tidemill", "health"]
    assert config["User"] == "10001:10001"
    assert list(config["Volumes"]) == ["/var/lib/tidemill"]


@contextmanager
def running(engine: Engine, name: str, image: str, *arguments: str, **environ: str) -> Iterator[str]:
    """A container with a read-only root, one volume and no more rights than it needs."""
    variables = [part for key, value in environ.items() for part in ("-e", f"{key}={value}")]
    no_tmpfs = ("--read-only-tmpfs=false",) if engine.program == "podman" else ()
    engine("volume", "create", f"{name}-volume")
    volume = f"{name}-volume:/var/lib/tidemill"
    engine("run", "-d", "--name", name, *TIGHT, *no_tmpfs, "-v", volume, *variables, *arguments, image)
    try:
        yield name
    finally:
        engine("rm", "-f", "-v", name, check=False)
        engine("volume", "rm", f"{name}-volume", check=False)


def wait_healthy(engine: Engine, name: str, timeout_s: float = 180) -> None:
    """Wait until the image's own health check is passed."""
    check = engine.inspect("container", name)["Config"]["Healthcheck"]["Test"][1:]
    deadline = time.monotonic() + timeout_s
    while (done := engine("exec", name, *check, check=False)).returncode != 0:
        assert time.monotonic() < deadline, done.stdout + done.stderr + engine("logs", name).stderr
        time.sleep(0.3)


def stopped_cleanly(engine: Engine, name: str) -> None:
    """SIGTERM ends the process with status 0; one that the engine has to kill has another."""
    engine("stop", "-t", "120", name)
    assert engine.inspect("container", name)["State"]["ExitCode"] == 0, engine("logs", name).stderr[-3000:]


@pytest.mark.parametrize("target", ["broker", "connect", "mirror", "spark"])
def test_a_process_that_is_told_to_stop_while_it_starts_ends_in_order(
    engine: Engine, images: Images, target: str
) -> None:
    environ = {"connect": CONNECT, "mirror": MIRROR, "spark": SPARK}.get(target, {})
    with running(engine, f"tt-early-{target}", images.names[target], "--network", "none", **environ) as name:
        stopped_cleanly(engine, name)


def test_all_of_them_run_read_only_and_stop_when_told(engine: Engine, images: Images) -> None:
    network = "tidemill-test-images"
    engine("network", "create", network)
    net = ("--network", network)
    try:
        with (
            running(engine, "tt-broker", images.names["broker"], *net, "--network-alias", "broker"),
            running(engine, "tt-other", images.names["broker"], *net, "--network-alias", "other"),
            running(engine, "tt-connect", images.names["connect"], *net, **CONNECT),
            running(engine, "tt-mirror", images.names["mirror"], *net, **MIRROR),
            running(engine, "tt-spark", images.names["spark"], *net, **SPARK),
        ):
            wait_healthy(engine, "tt-broker")
            engine("exec", "tt-broker", "tidemill", "topic", "create", "t")
            for name in ("tt-connect", "tt-mirror", "tt-spark", "tt-other", "tt-broker"):
                wait_healthy(engine, name)
                stopped_cleanly(engine, name)
    finally:
        engine("network", "rm", "-f", network, check=False)
