"""Real requests over a real socket."""

import asyncio
import contextlib
import itertools
import json
import select
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed, wait

import pytest

from tidemill.core.runtime.probe import (
    CLIENT_PATIENCE_S,
    CLIENTS_MAX,
    SCRAPERS_MAX,
    LoopSilent,
    Probe,
    ProbeServer,
    Reason,
    on_loop,
)

WELL = Probe(live=lambda: None, ready=list)


@pytest.fixture
def server() -> Iterator[ProbeServer]:
    running = ProbeServer("127.0.0.1", 0, WELL).start()
    yield running
    running.close()


def get(server: ProbeServer, path: str, timeout_s: float = 20) -> tuple[int, str, str]:
    """Status, content type and body."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=timeout_s) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers["Content-Type"], answer.read().decode()


def test_a_process_that_is_well(server: ProbeServer) -> None:
    assert get(server, "/health/live") == (200, "application/json", '{"status": "live"}\n')
    assert get(server, "/health/ready") == (200, "application/json", '{"status": "ready"}\n')


def test_what_is_not_ready_and_why(server: ProbeServer) -> None:
    server.probe = Probe(live=lambda: None, ready=lambda: [Reason(what="flow A->B", why="A does not answer")])
    status, _, body = get(server, "/health/ready")
    assert status == 503
    assert json.loads(body) == {
        "status": "not ready",
        "reasons": [{"what": "flow A->B", "why": "A does not answer"}],
    }
    assert get(server, "/health/live")[0] == 200


def test_what_is_dead_is_not_ready(server: ProbeServer) -> None:
    server.probe = Probe(live=lambda: "the disk failed", ready=list)
    for path in ("/health/live", "/health/ready"):
        status, _, body = get(server, path)
        assert (status, json.loads(body)) == (503, {"status": "not live", "why": "the disk failed"})


def test_metrics_are_served_where_there_are_any(server: ProbeServer) -> None:
    status, _, body = get(server, "/metrics")
    assert status == 404
    assert "/health/live, /health/ready" in body
    server.probe = Probe(live=lambda: None, ready=list, metrics=lambda: b"a_total 1\n")
    assert get(server, "/metrics") == (200, "text/plain; version=0.0.4; charset=utf-8", "a_total 1\n")


def test_a_question_that_fails_is_an_answer(server: ProbeServer) -> None:
    def broken() -> bytes:
        raise ValueError("no")

    server.probe = Probe(live=lambda: None, ready=list, metrics=broken)
    assert get(server, "/metrics")[0] == 500
    assert get(server, "/health/live")[0] == 200


def test_a_client_that_says_nothing_holds_nobody_up_for_ever() -> None:
    server = ProbeServer("127.0.0.1", 0, WELL, client_patience_s=0.2).start()
    with socket.create_connection(("127.0.0.1", server.port)):
        assert get(server, "/health/live")[0] == 200
    server.close()


def test_a_client_that_says_a_byte_now_and_then_holds_nobody_up(server: ProbeServer) -> None:
    """Under a patience for each byte this one would be waited for as long as it likes, also by who stops."""
    ends = threading.Event()
    with socket.create_connection(("127.0.0.1", server.port)) as slow:

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not ends.wait(0.05):
                    slow.sendall(b"G")

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert get(server, "/health/live", timeout_s=2)[0] == 200
        server.close()
        ends.set()
        dripping.join()


def test_a_request_has_so_long_in_all() -> None:
    server = ProbeServer("127.0.0.1", 0, WELL, client_patience_s=0.3).start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as slow, contextlib.suppress(OSError):
        while not select.select([slow], [], [], 0.05)[0]:
            slow.sendall(b"G")
        assert slow.recv(1) == b""
    server.close()


@pytest.mark.parametrize("count", [3, 10 * CLIENTS_MAX])
def test_clients_that_say_nothing_hold_nobody_up(server: ProbeServer, count: int) -> None:
    with contextlib.ExitStack() as silent:
        for _ in range(count):
            silent.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        began = time.monotonic()
        assert get(server, "/health/live")[0] == 200
        assert time.monotonic() - began < CLIENT_PATIENCE_S


def test_health_is_told_while_metrics_are_written(server: ProbeServer) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> bytes:
        begun.set()
        go_on.wait(20)
        return b"a_total 1\n"

    server.probe = Probe(live=lambda: None, ready=list, metrics=slow)
    with ThreadPoolExecutor(2 * CLIENTS_MAX) as pool:
        scrapes = [pool.submit(get, server, "/metrics") for _ in range(2 * CLIENTS_MAX)]
        assert begun.wait(20)
        refused = 2 * CLIENTS_MAX - SCRAPERS_MAX
        ended = list(itertools.islice(as_completed(scrapes, timeout=20), refused))
        assert {each.result()[0] for each in ended} == {503}
        assert get(server, "/health/live", timeout_s=10)[0] == 200
        go_on.set()
        assert sorted(each.result()[0] for each in scrapes) == [200] * SCRAPERS_MAX + [503] * refused


@pytest.mark.parametrize("said", [b"\0" * 100, b"G" * 100_000, b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"\n\n"])
def test_garbage_is_one_client_s_trouble(server: ProbeServer, said: bytes) -> None:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        while client.recv(65_536):
            pass
    assert get(server, "/health/live")[0] == 200


def test_an_address_of_ipv6() -> None:
    server = ProbeServer("::1", 0, WELL).start()
    with socket.create_connection(("::1", server.port), timeout=20) as client:
        client.sendall(b"GET /health/live HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.0 200")
    server.close()


def test_a_port_in_use_is_an_error(server: ProbeServer) -> None:
    with pytest.raises(OSError, match="in use"):
        ProbeServer("127.0.0.1", server.port, WELL)


def test_once_closed_no_part_of_the_process_is_asked_any_more() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> bytes:
        begun.set()
        go_on.wait(20)
        return b"a_total 1\n"

    server = ProbeServer("127.0.0.1", 0, Probe(live=lambda: None, ready=list, metrics=slow)).start()
    with ThreadPoolExecutor(2) as pool, socket.create_connection(("127.0.0.1", server.port)):
        scrape = pool.submit(get, server, "/metrics")
        assert begun.wait(20)
        closing = pool.submit(server.close)
        assert not wait([closing], timeout=0.5).done, "it waits for the answer, not for who says nothing"
        go_on.set()
        assert scrape.result(20)[0] == 200
        closing.result(20)


def test_closing_frees_the_port(server: ProbeServer) -> None:
    server.close()
    ProbeServer("127.0.0.1", server.port, WELL).close()


def test_a_loop_is_asked_on_its_own_thread(threaded_loop: asyncio.AbstractEventLoop) -> None:
    async def name() -> str:
        return threading.current_thread().name

    assert on_loop(threaded_loop, name)() != threading.current_thread().name


def test_a_loop_that_hangs_is_told(threaded_loop: asyncio.AbstractEventLoop, server: ProbeServer) -> None:
    async def nothing() -> None:
        return None

    server.probe = Probe(live=on_loop(threaded_loop, nothing, patience_s=0.1), ready=list)
    assert get(server, "/health/live")[0] == 200
    threaded_loop.call_soon_threadsafe(time.sleep, 1)
    status, _, body = get(server, "/health/live")
    assert status == 503
    assert json.loads(body)["why"] == "the event loop has not answered for 0.1 s"


def test_a_loop_that_is_closed_is_told() -> None:
    async def nothing() -> None:
        return None

    closed = asyncio.new_event_loop()
    closed.close()
    with pytest.raises(LoopSilent, match="stopping"):
        on_loop(closed, nothing)()
