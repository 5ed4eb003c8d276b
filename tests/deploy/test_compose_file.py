"""What the compose files and their page promise, read from the files: variables, secrets, and time to stop"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FILES = ("compose.yaml", "compose.cluster.yaml")
BROKERS = ("east", "west", "one", "two", "three")
UNITS = {**dict.fromkeys(BROKERS, "broker"), "connect": "connect", "mirror": "mirror@", "spark": "spark@"}
CHECKS = {
    **dict.fromkeys(BROKERS, "broker config --config {}/broker.properties"),
    "connect": "connect config --config {}/connect.properties",
    "mirror": "mirror config",
    "spark": "spark check --offline {}/spark.properties",
}
CLUSTER = "dGlkZW1pbGwtY2x1c3Rlcg"
OF_SHELLS = {"HOST", "HOSTNAME", "USER", "LOGNAME", "HOME", "PATH", "SHELL", "LANG", "TERM", "PWD", "MAIL", "DISPLAY"}
"""Names that some login shells export (HOST: tcsh, SUSE); compose takes those before what .env says."""


def compose(file: str) -> Mapping[str, Any]:
    """The services."""
    found: Mapping[str, Any] = yaml.safe_load((DEPLOY / file).read_text(encoding="utf-8"))["services"]
    return found


SERVICES = [(file, service) for file in FILES for service in sorted(compose(file))]


def seconds(text: str) -> int:
    """Of `90s`."""
    assert text.endswith("s")
    return int(text[:-1])


def test_every_variable_is_in_the_example_and_belongs_to_nobody_else() -> None:
    used = {each for file in FILES for each in re.findall(r"\$\{(\w+)", (DEPLOY / file).read_text(encoding="utf-8"))}
    told = set(re.findall(r"^(\w+)=", (DEPLOY / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))
    assert used == told
    assert not used & OF_SHELLS


@pytest.mark.parametrize(("file", "service"), SERVICES)
def test_a_service_is_given_the_time_that_it_may_need_to_stop(file: str, service: str) -> None:
    given = seconds(compose(file)[service]["stop_grace_period"])
    if service in UNITS:
        unit = (DEPLOY / "systemd" / "system" / f"tidemill-{UNITS[service]}.service").read_text(encoding="utf-8")
        needed = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
        assert needed is not None and given >= int(needed[1])
    assert given > 10, "more than an engine gives by itself"


@pytest.mark.integration
@pytest.mark.parametrize(("file", "service"), [each for each in SERVICES if each[1] in CHECKS])
def test_the_settings_of_a_service_can_be_used(file: str, service: str) -> None:
    given = {
        name: re.sub(
            r"\$\{\w+:-([^}]*)\}", r"\1", value.replace("${CLUSTER_ID:?set it in .env, see README.md}", CLUSTER)
        )
        for name, value in compose(file)[service]["environment"].items()
    }
    command = [sys.executable, "-m", "tidemill.cli", *CHECKS[service].format(DEPLOY / "etc").split()]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    done = subprocess.run(command, env={**clean, **given}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_no_secret_is_on_a_command_line() -> None:
    for block in re.findall(r"^```sh\n(.*?)^```$", (DEPLOY / "README.md").read_text(encoding="utf-8"), re.M | re.S):
        assert not re.search(r"\$\{?\w*PASSWORD", block), "whoever lists the processes of the machine would read it"
