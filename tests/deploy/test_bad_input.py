"""What a container says that cannot start, and that it is not started for ever

Faults that a process shows without a container are in `tests/integration/test_start_refusals.py`.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.conftest import Images
from tests.deploy.engine import Engine

START_TIMEOUT_S = 300  # a machine with other work takes its time; alone it is seconds

pytestmark = [pytest.mark.integration, pytest.mark.deploy, pytest.mark.timeout(1_500)]


def ended(engine: Engine, image: str, *arguments: str) -> tuple[int, str]:
    """Exit status and last line of a container that ends by itself."""
    done = engine("run", "--rm", *arguments, image, check=False)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("tidemill ")]
    assert len(lines) == 1, done.stdout + done.stderr
    return done.returncode, lines[0]


def test_a_volume_of_somebody_else(engine: Engine, images: Images, tmp_path: Path) -> None:
    status, line = ended(engine, images.names["broker"], "-v", f"{tmp_path}:/var/lib/tidemill")
    assert status == 1
    assert line.startswith("tidemill broker: cannot write to /var/lib/tidemill/data: Permission denied")


def test_a_volume_of_another_node(engine: Engine, images: Images) -> None:
    volume = ("-v", "tidemill-test-node:/var/lib/tidemill")
    try:
        name = engine("run", "-d", *volume, images.names["broker"]).stdout.strip()
        deadline = time.monotonic() + START_TIMEOUT_S
        while "tidemill broker ready" not in engine("logs", name).stdout:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        engine("stop", "-t", "60", name)
        engine("rm", name)
        status, line = ended(engine, images.names["broker"], *volume, "-e", "TIDEMILL_BROKER_NODE_ID=2")
    finally:
        engine("volume", "rm", "-f", "tidemill-test-node", check=False)
    assert status == 1
    assert line == (
        "tidemill broker: /var/lib/tidemill/data belongs to node.id 1, not 2: "
        "set node.id to match or use another data folder"
    )


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one page; tmpfs of the engines would have the owner of the image's folder."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system of 4 KiB")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=1777", "none", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_full_disk(engine: Engine, images: Images, tiny: Path) -> None:
    status, line = ended(engine, images.names["broker"], "-v", f"{tiny}:/var/lib/tidemill")
    assert status == 1
    assert line.startswith("tidemill broker: the broker cannot write to /var/lib/tidemill/data: ")
    assert line.endswith("No space left on device; free space or make it writable")


@pytest.mark.parametrize("target", ["broker", "connect", "mirror", "spark"])
def test_a_wrong_setting_is_one_line_and_ends(engine: Engine, images: Images, target: str) -> None:
    variable = f"TIDEMILL_{target.upper()}_NONSENSE"
    status, line = ended(engine, images.names[target], "-e", f"{variable}=1")
    assert status == 2
    assert line.startswith(f"tidemill {target}: Unknown variable {variable}: ")


def test_nothing_restarts_for_ever(engine: Engine, images: Images) -> None:
    name = "tidemill-test-restarts"
    arguments = ("--restart", "on-failure:2", "-e", "TIDEMILL_BROKER_NODE_ID_FILE=/run/secrets/none")
    try:
        engine("run", "-d", "--name", name, *arguments, images.names["broker"])
        deadline = time.monotonic() + START_TIMEOUT_S
        while engine("logs", name, check=False).stderr.count("cannot read '/run/secrets/none'") < 3:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        engine("wait", name)
        state = engine.inspect("container", name)["State"]
        assert (state["Running"], state["ExitCode"]) == (False, 2)
        said = engine("logs", name).stderr
        assert len(re.findall(r"^tidemill broker: ", said, re.MULTILINE)) == 3
    finally:
        engine("rm", "-f", "-v", name, check=False)
