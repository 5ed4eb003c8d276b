"""Services: readiness, failure with the log's end, stop, kill, restart."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from tidemill.services import Service, ServiceError

pytestmark = pytest.mark.integration


def broker(tmp_path: Path, *options: str) -> Service:
    return Service(
        "broker",
        ["broker", "start", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", *options],
        ready=r"tidemill broker ready: listening on (?P<address>\S+),",
        log=tmp_path / "broker.log",
    )


def test_a_service_is_ready_when_it_says_so_and_stops_cleanly(tmp_path: Path) -> None:
    service = broker(tmp_path).start()
    assert service.running
    assert service.facts["address"].startswith("127.0.0.1:")
    assert service.stop() == 0
    assert not service.running
    assert service.stop() is None


def test_a_users_own_module_is_not_taken_for_the_standard_librarys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m` looks in the current folder first, and that is wherever the user happens to be."""
    (tmp_path / "queue.py").write_text("raise SystemExit('the module of the user')\n")
    monkeypatch.chdir(tmp_path)
    assert broker(tmp_path).start().stop() == 0


def test_a_killed_service_starts_again_on_the_same_folder(tmp_path: Path) -> None:
    service = broker(tmp_path).start()
    first = service.pid
    service.kill()
    assert not service.running
    service.restart()
    assert service.pid != first
    service.stop()


def test_a_service_that_ends_quotes_its_log(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"no\.such\.key"):
        broker(tmp_path, "--set", "no.such.key=1").start()


def test_starting_twice_is_refused(tmp_path: Path) -> None:
    service = broker(tmp_path).start()
    try:
        with pytest.raises(ServiceError, match="already running"):
            service.start()
    finally:
        service.stop()


def test_a_service_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    service = broker(tmp_path)
    starter = threading.Thread(target=service.start)
    starter.start()
    starter.join()
    assert service.running
    assert service.stop() == 0


def test_a_service_dies_with_the_program_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tests.tidemill.test_services import broker\n"
        "service = broker(Path(sys.argv[1])).start()\n"
        "print(service.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    with starter.stdout:
        service = psutil.Process(int(starter.stdout.readline()))
    assert service.is_running()
    starter.kill()
    starter.wait()
    service.wait(30)  # raises TimeoutExpired while it lives


def test_no_python_code_of_the_starter_runs_in_the_new_process(tmp_path: Path) -> None:
    """It would run destructors of what other threads own: sockets are shut down for both processes."""
    ran, told = os.pipe()
    watching = True

    def in_child() -> None:
        if watching:
            os.write(told, b"!")

    os.register_at_fork(after_in_child=in_child)
    service = broker(tmp_path).start()
    watching = False
    service.kill()
    os.close(told)
    assert os.read(ran, 1) == b""
    os.close(ran)
