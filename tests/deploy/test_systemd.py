"""The units of systemd, judged by systemd's own programs, and their command lines, run as they stand."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
UNITS = sorted(path.name for path in (FOLDER / "system").iterdir())
PROGRAM = "/opt/tidemill/bin/tidemill"
SETTINGS = "/etc/tidemill/"
EXPOSURE_MAX = 30  # tenths: 3.0 of 10
WRONG = {
    "tidemill-broker.service": "num.partitions=many",
    "tidemill-connect.service": "offset.flush.interval.ms=soon",
    "tidemill-mirror@.service": "replication.factor=many",
    "tidemill-spark@.service": "trigger.interval.ms=soon",
}

pytestmark = pytest.mark.integration


def systemd(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run one of systemd's programs; skips where there is none."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: apt-get install systemd")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def value_of(unit: str, key: str) -> str:
    (line,) = [
        row for row in (FOLDER / "system" / unit).read_text(encoding="utf-8").splitlines() if row.startswith(f"{key}=")
    ]
    return line.removeprefix(f"{key}=")


def command_of(unit: str, settings: Path) -> list[str]:
    """What the unit runs as instance `example`, with this folder for its settings and this interpreter's program."""
    line = value_of(unit, "ExecStart").replace("%i", "example").replace("$MIRROR_OPTIONS ", "")
    program, *arguments = shlex.split(line.replace(SETTINGS, f"{settings}/"))
    assert program == PROGRAM
    return [sys.executable, "-m", "tidemill.cli", *arguments]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """The settings that come with the units."""
    return Path(shutil.copytree(FOLDER / "etc", tmp_path / "settings"))


@pytest.fixture(params=UNITS)
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit, as an instance if it is a template, whose program is there."""
    name: str = request.param
    text = (FOLDER / "system" / name).read_text(encoding="utf-8").replace(PROGRAM, sys.executable)
    (tmp_path / name).write_text(text, encoding="utf-8")
    instance = tmp_path / name.replace("@.", "@example.")
    instance.write_text(text, encoding="utf-8")
    return instance


def test_systemd_finds_nothing_to_say(installed: Path) -> None:
    done = systemd("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", installed)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_little_is_exposed(installed: Path) -> None:
    threshold = f"--threshold={EXPOSURE_MAX}"
    done = systemd("systemd-analyze", "security", "--offline=true", threshold, "--no-pager", installed)
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd before 250 judges no files")
    assert done.returncode == 0, done.stdout


def test_user_and_folders_are_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    done = systemd("systemd-sysusers", f"--root={tmp_path}", FOLDER / "sysusers.d" / "tidemill.conf")
    assert done.returncode == 0, done.stderr
    (user,) = [row for row in (tmp_path / "etc/passwd").read_text(encoding="utf-8").splitlines() if "tidemill" in row]
    assert user.endswith(":Tidemill:/var/lib/tidemill:/usr/sbin/nologin")
    if os.geteuid():
        pytest.skip("only root gives folders to somebody")
    uid, gid = map(int, user.split(":")[2:4])
    done = systemd("systemd-tmpfiles", f"--root={tmp_path}", "--create", FOLDER / "tmpfiles.d" / "tidemill.conf")
    assert done.returncode == 0, done.stderr
    found = {name: (tmp_path / name).stat() for name in ("etc/tidemill", "var/lib/tidemill")}
    assert {name: (each.st_uid, each.st_gid, each.st_mode & 0o777) for name, each in found.items()} == {
        "etc/tidemill": (0, gid, 0o750),
        "var/lib/tidemill": (uid, gid, 0o750),
    }


@pytest.mark.parametrize("unit", UNITS)
def test_settings_that_cannot_be_used_end_a_unit_for_good(unit: str, settings: Path) -> None:
    command = command_of(unit, settings)
    (file,) = [Path(word) for word in command if word.startswith(str(settings))]
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{WRONG[unit]}\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert WRONG[unit].partition("=")[0] in done.stderr, "the command line is understood, and the setting refused"
    assert str(done.returncode) in value_of(unit, "RestartPreventExitStatus").split()


@pytest.mark.parametrize(
    "check",
    [
        "broker config --config {}/broker.properties",
        "connect config --config {}/connect.properties",
        "mirror config {}/mirror-example.properties",
        "spark check --offline {}/spark-example.properties",
    ],
)
def test_the_settings_that_come_along_can_be_used(check: str, settings: Path) -> None:
    command = [sys.executable, "-m", "tidemill.cli", *check.format(settings).split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_broker_starts_and_stops_in_order(settings: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TIDEMILL_BROKER_LISTENERS": "PLAINTEXT://127.0.0.1:0",
        "TIDEMILL_BROKER_LOG_DIRS": str(tmp_path / "data"),
        "TIDEMILL_BROKER_METRICS_LISTENER": "127.0.0.1:0",
    }
    command = command_of("tidemill-broker.service", settings)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as run:
        assert run.stdout is not None
        assert "ready" in run.stdout.readline()
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0


def test_who_writes_to_the_broker_stops_before_it() -> None:
    for unit in UNITS:
        after = value_of(unit, "After").split()
        assert ("tidemill-broker.service" in after) is (unit != "tidemill-broker.service")


def test_the_page_installs_what_lies_beside_it() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"pip install -c (\S+) '([^']+)\[", page)
    assert len(commands) == page.count("pip install") == 2
    for locked, project in commands:
        assert (FOLDER / locked).is_file() and (FOLDER / project / "pyproject.toml").is_file()


@pytest.mark.parametrize("unit", UNITS)
def test_nothing_starts_again_in_a_hot_loop(unit: str) -> None:
    assert value_of(unit, "Restart") == "on-failure"
    assert int(value_of(unit, "RestartSec")) >= 10
    assert "StartLimitIntervalSec=0" in (FOLDER / "system" / unit).read_text(encoding="utf-8"), "nor does it give up"
