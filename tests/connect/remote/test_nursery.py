"""A nursery, under orders of a test"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from tests.connect.conftest import python_path
from tests.connect.remote.held_processes import held
from tests.connect.remote.test_host import parent_of
from tidemill.connect.loader import GROUP
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.frames import FrameReader, frame
from tidemill.connect.remote.orders import Line, OrderSocket, close_files
from tidemill.connect.remote.process_ties import NAME_ROOM

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are told apart by /proc"),
]

HERE = Path(__file__).parent
DEADLINE_S = 30.0

_said: WeakKeyDictionary[OrderSocket, list[Line]] = WeakKeyDictionary()
"""What has come together with something before it."""


class Guardian:
    """The guardian's end of lines to nurseries."""

    def __init__(self, folder: Path) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "tidemill.connect.remote.nursery", NAME_ROOM]
        environ = {**os.environ, "PYTHONPATH": python_path(HERE, folder)}
        with theirs:
            self.process = subprocess.Popen(command, stdin=theirs, env=environ)
        ours.settimeout(DEADLINE_S)
        self.first = OrderSocket(ours)
        self._numbers = iter(range(1, 1000))
        self.last_nursery = 0

    def nursery(self, plugin: str) -> OrderSocket:
        ours, theirs = socket.socketpair()
        ours.settimeout(DEADLINE_S)
        with theirs:
            self.last_nursery = -next(self._numbers)
            self.first.send({"do": "nursery", "number": self.last_nursery, "plugin": plugin}, (theirs.fileno(),))
        return OrderSocket(ours)

    def drop(self, nursery: OrderSocket) -> None:
        """Let a nursery end, and hear of it."""
        nursery.close()
        assert heard(self.first)["said"] == "died"

    def fork(self, line: OrderSocket) -> tuple[int, socket.socket]:
        """Have a task forked: its number, and the stream to it."""
        stream, theirs = socket.socketpair()
        stream.settimeout(DEADLINE_S)
        number = next(self._numbers)
        with theirs, open(os.devnull, "wb") as output:
            files = (output.fileno(), theirs.fileno())
            line.send({"do": "fork", "number": number, "label": f"t-{number}"}, files)
        return number, stream


def heard(line: OrderSocket) -> dict[str, Any]:
    """The next thing a nursery says."""
    waiting = _said.setdefault(line, [])
    if not waiting:
        waiting += line.receive() or [Line({"said": "nothing more"})]
    found = waiting.pop(0)
    close_files(found.files)
    return found.facts


def hello(stream: socket.socket) -> int:
    """The process that says it is there."""
    frames = FrameReader()
    while True:
        for each in frames.take(stream.recv(1000)):
            return int(pb.FromTask.FromString(each).hello.pid)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not gone(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where plugins are found."""
    return tmp_path_factory.mktemp("plugins")


@pytest.fixture(scope="module")
def guardian(folder: Path) -> Iterator[Guardian]:
    found = Guardian(folder)
    assert heard(found.first) == {"said": "ready"}
    yield found
    found.first.close()
    assert found.process.wait(DEADLINE_S) == 0, "it ends with its guardian"


def test_a_task_is_forked_and_its_end_is_told(guardian: Guardian) -> None:
    number, stream = guardian.fork(guardian.first)
    with stream:
        pid = hello(stream)
        assert Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0") == f"tidemill: task t-{number}"
        assert os.getsid(pid) == pid
        os.kill(pid, signal.SIGTERM)  # left to the worker
        stream.sendall(frame(pb.ToTask(check=pb.Check(plugin="task_plugins:job", config={"mode": "wait"}))))
        while stream.recv(1000):
            pass  # to its last words
    assert heard(guardian.first) == {"said": "died", "number": number, "status": 0}


def test_a_task_is_killed_when_it_is_ordered(guardian: Guardian) -> None:
    number, stream = guardian.fork(guardian.first)
    with stream:
        pid = hello(stream)
        guardian.first.send({"do": "kill", "number": number})
        assert heard(guardian.first) == {"said": "killed", "number": number}
        assert heard(guardian.first) == {"said": "died", "number": number, "status": signal.SIGKILL}
        assert gone(pid)
        guardian.first.send({"do": "kill", "number": number})  # nobody any more


def test_the_tasks_of_a_nursery_that_the_kernel_holds_are_killed_with_it(guardian: Guardian) -> None:
    line = guardian.nursery("task_plugins:job")
    assert heard(line)["said"] == "ready"
    _, stream = guardian.fork(line)
    task = hello(stream)
    nursery = parent_of(task)
    with held(nursery):
        guardian.first.send({"do": "kill", "number": guardian.last_nursery})
        assert heard(guardian.first)["said"] == "killed"
        until_gone(task)
        assert not gone(nursery)
    assert heard(guardian.first)["said"] == "died"


def test_a_nursery_takes_its_tasks_with_it(guardian: Guardian) -> None:
    nursery = guardian.nursery("task_plugins:job")
    assert heard(nursery) == {"said": "ready"}
    _, stream = guardian.fork(nursery)
    with stream:
        pid = hello(stream)
        guardian.drop(nursery)
        until_gone(pid)


def test_a_plugin_that_was_edited_is_not_forked_any_more(guardian: Guardian, folder: Path) -> None:
    file = folder / "edited_plugin.py"
    file.write_text("version = 1\n")
    nursery = guardian.nursery("edited_plugin:plugin")
    assert heard(nursery) == {"said": "ready"}
    _, stream = guardian.fork(nursery)
    with stream:
        hello(stream)
    assert heard(nursery)["said"] == "died"
    file.write_text("version = 2.0\n")
    number, stream = guardian.fork(nursery)
    with stream:
        (line,) = nursery.receive() or []
        assert line.facts == {"said": "stale", "number": number}
        assert len(line.files) == 2, "they are for another nursery"
        close_files(line.files)
    guardian.drop(nursery)


def test_what_a_plugin_made_at_import_outlives_the_first_of_its_tasks(guardian: Guardian, folder: Path) -> None:
    (folder / "owning_plugin.py").write_text(
        "import os, tempfile\nfolder = tempfile.TemporaryDirectory(dir=os.path.dirname(__file__), prefix='theirs')\n"
    )
    nursery = guardian.nursery("owning_plugin:plugin")
    assert heard(nursery) == {"said": "ready"}
    _, stream = guardian.fork(nursery)
    with stream:
        hello(stream)
        stream.sendall(frame(pb.ToTask(check=pb.Check(plugin="owning_plugin:plugin"))))
        while stream.recv(1000):
            pass  # to its last words
        stream.shutdown(socket.SHUT_WR)
        assert heard(nursery)["status"] == 0
    assert list(folder.glob("theirs*")), "the next task needs it, too"
    guardian.drop(nursery)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import threading, time\nthreading.Thread(target=time.sleep, args=[600], daemon=True).start()", "1 threads"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit('no')", "SystemExit: no"),
    ],
)
def test_a_plugin_that_cannot_be_imported_ahead_says_why(
    guardian: Guardian, folder: Path, text: str, reason: str
) -> None:
    (folder / "odd_plugin.py").write_text(text + "\n")
    nursery = guardian.nursery("odd_plugin:plugin")
    said = heard(nursery)
    assert said["said"] == "unfit" and reason in said["reason"]
    assert heard(nursery) == {"said": "nothing more"}
    guardian.drop(nursery)


def test_a_plugin_that_is_only_a_name_is_not_imported_ahead(guardian: Guardian) -> None:
    nursery = guardian.nursery("FileStreamSource")
    assert "does not say which module" in heard(nursery)["reason"]
    guardian.drop(nursery)


@pytest.mark.parametrize("target", sorted({point.value for point in entry_points(group=GROUP)}))
def test_the_plugins_that_are_shipped_can_be_imported_ahead(guardian: Guardian, target: str) -> None:
    nursery = guardian.nursery(target)
    assert heard(nursery) == {"said": "ready"}
    guardian.drop(nursery)


def test_a_task_has_little_of_its_own_and_no_thread_before_it_begins(guardian: Guardian) -> None:
    """What it costs beside that is its clients and its plugin."""
    nursery = guardian.nursery("tidemill.connect.plugins.file:file_source")
    assert heard(nursery) == {"said": "ready"}
    _, stream = guardian.fork(nursery)
    with stream:
        pid = hello(stream)
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        own_kib = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
        assert own_kib < 8_000, "2,000 to 3,000; an interpreter with all that is imported has 40,000"
        assert len(os.listdir(f"/proc/{pid}/task")) == 1
    guardian.drop(nursery)
