"""`tidemill health` against real servers, good and bad."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidemill.cli import candidates_of, main
from tidemill.core.runtime.probe import Probe, ProbeServer, Reason

WELL = Probe(live=lambda: None, ready=list)


@contextmanager
def served(probe: Probe) -> Iterator[str]:
    server = ProbeServer("127.0.0.1", 0, probe).start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.close()


@contextmanager
def answering(*pieces: bytes) -> Iterator[str]:
    """A server that sends `pieces` to its first client whatever that says, and then keeps the connection."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.recv(65_536)
                for piece in pieces:
                    connection.sendall(piece)
                if pieces:
                    connection.shutdown(socket.SHUT_WR)
                done.wait()

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main(["health", *arguments])
    assert isinstance(ended.value.code, int)
    return (ended.value.code, *capsys.readouterr())


def test_a_process_that_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    with served(WELL) as url:
        assert asked(capsys, url) == (0, "ready\n", "")
        assert asked(capsys, "--live", f"{url}/") == (0, "live\n", "")
        assert asked(capsys, url.removeprefix("http://")) == (0, "ready\n", "")


def test_a_process_that_is_not_ready_says_why_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = [Reason(what="a", why="it waits\nfor b"), Reason(what="c", why="no room")]
    with served(Probe(live=lambda: None, ready=lambda: reasons)) as url:
        told = "tidemill health: not ready: a: it waits for b; c: no room\n"
        assert asked(capsys, url) == (1, "", told)
        assert asked(capsys, url, "--live") == (0, "live\n", "")


def test_a_process_that_is_not_alive(capsys: pytest.CaptureFixture[str]) -> None:
    with served(Probe(live=lambda: "its loop hangs", ready=list)) as url:
        for arguments in ((url,), (url, "--live")):
            assert asked(capsys, *arguments) == (1, "", "tidemill health: not live: its loop hangs\n")


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    told = f"tidemill health: cannot ask 127.0.0.1:{port}: Connection refused\n"
    assert asked(capsys, f"http://127.0.0.1:{port}") == (1, "", told)


def test_a_process_that_does_not_answer_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    with answering() as url:
        status, _, told = asked(capsys, url, "--timeout", "0.2")
        assert (status, told) == (1, f"tidemill health: no answer from {url.removeprefix('http://')} within 0.2 s\n")


def test_a_name_that_is_not_found_in_time(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found.wait(60) and [])
    try:
        told = asked(capsys, "http://broker.example:9404", "--timeout", "0.1")
    finally:
        found.set()
    assert told == (1, "", "tidemill health: no answer from broker.example:9404 within 0.1 s\n")


def test_a_look_up_that_hangs_does_not_keep_the_program() -> None:
    code = (
        "import socket, time, tidemill.cli\n"
        "socket.getaddrinfo = lambda *_, **__: time.sleep(3600)\n"
        "tidemill.cli.main(['health', 'http://broker.example:9404', '--timeout', '0.1'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


def test_all_addresses_of_a_name_are_tried(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = socket.getaddrinfo

    def found(host: str, port: int, **more: int) -> list[object]:
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            closed = nobody.getsockname()
        kind = socket.SOCK_STREAM
        unknown = (socket.AF_INET, -7, 0, "", closed)
        return [unknown, (socket.AF_INET, kind, 0, "", closed), *looked_up("127.0.0.1", port, **more)]

    with served(WELL) as url:
        monkeypatch.setattr(socket, "getaddrinfo", found)
        assert asked(capsys, url.replace("127.0.0.1", "broker.example")) == (0, "ready\n", "")


def test_a_name_that_nobody_has(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", found)
    told = "tidemill health: cannot ask broker.example:9404: Name or service not known\n"
    assert asked(capsys, "http://broker.example:9404") == (1, "", told)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP"),
        (b"", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>hello\n</html>", "status 200, which no Tidemill process says so: <html>hello"),
        (b"HTTP/1.1 200 OK\r\n\r\n[1]", "status 200, which no Tidemill process says so: [1]"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "status 404, which no Tidemill process says so: nothing more"),
        (b'HTTP/1.1 503 No\r\n\r\n{"status": "not ready", "reasons": 3}', "status 503, which no Tidemill process"),
    ],
)
def test_what_is_no_tidemill_process(answer: bytes, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(answer) as url:
        status, out, err = asked(capsys, url)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert told in err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("https://127.0.0.1:1",),
        ("127.0.0.1",),
        ("http://127.0.0.1:70000",),
        ("http://127.0.0.1:1/health/live",),
        ("127.0.0.1:1", "--timeout", "0"),
        ("127.0.0.1:1", "--timeout", "soon"),
        ("127.0.0.1:1", "--liv"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = asked(capsys, *arguments)
    assert (status, out) == (2, "")
    assert "tidemill health: error: " in err


def test_it_loads_nothing_that_it_does_not_use() -> None:
    with served(WELL) as url:
        code = (
            "import sys, tidemill.cli\n"
            f"try: tidemill.cli.main(['health', '{url}'])\n"
            "finally: print([m for m in ('asyncio', 'typer', 'rich', 'http', 'ssl', 'structlog') if m in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n[]\n", "")


def test_its_options_are_completed() -> None:
    assert candidates_of(["health", "--"]) == ["--help", "--live", "--timeout"]
