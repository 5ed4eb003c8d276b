"""Services: readiness, failure with the log's end, stop, kill, restart."""

from pathlib import Path

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
