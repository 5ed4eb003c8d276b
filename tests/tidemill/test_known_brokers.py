"""Asking a broker whom it knows, without an event loop"""

import socket
import threading
from pathlib import Path

import pytest

from tidemill import services
from tidemill.known_brokers import known_brokers


@pytest.mark.integration
def test_a_broker_by_itself_knows_itself(tmp_path: Path) -> None:
    one = services.broker("one", tmp_path / "data", log=tmp_path / "log").start()
    try:
        assert known_brokers(one.facts["address"]) == {1}
    finally:
        one.kill()


def test_whoever_hangs_up_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = f"127.0.0.1:{door.getsockname()[1]}"
        hanging_up = threading.Thread(target=lambda: door.accept()[0].shutdown(socket.SHUT_RDWR))
        hanging_up.start()
        with pytest.raises(OSError, match=f"{address} closed the connection|reset"):
            known_brokers(address, 10)
        hanging_up.join()
