"""The REST client against a server of its own."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from tidemill.rest_client import RestClient, RestFailure


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked; `/refused` and `/odd` are errors, `/empty` has no body."""

    def do_PUT(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        sent = json.loads(self.rfile.read(length)) if length else None
        told = {"path": self.path, "sent": sent, "message": "not today"}
        status, content = 200, json.dumps(told).encode()
        if self.path.startswith("/refused"):
            status = 409
        elif self.path.startswith("/odd"):
            status, content = 502, b"<html>proxy</html>"
        elif self.path.startswith("/empty"):
            status, content = 204, b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""


@pytest.fixture(scope="module")
def client() -> Iterator[RestClient]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield RestClient(f"127.0.0.1:{server.server_port}/")
        server.shutdown()


def test_names_and_queries_are_encoded(client: RestClient) -> None:
    answer = client.ask("PUT", "connectors", "a/b ü", "config", body={"k": "v"}, only="true")
    assert answer["path"] == "/connectors/a%2Fb%20%C3%BC/config?only=true"
    assert answer["sent"] == {"k": "v"}


def test_an_answer_may_be_empty(client: RestClient) -> None:
    assert client.ask("PUT", "empty") is None


@pytest.mark.parametrize(
    ("path", "status", "says"), [("refused", 409, "not today"), ("odd", 502, "the worker answered 502 Bad Gateway")]
)
def test_a_refusal_is_the_workers_own_sentence(client: RestClient, path: str, status: int, says: str) -> None:
    with pytest.raises(RestFailure) as caught:
        client.ask("PUT", path)
    assert (caught.value.status, str(caught.value)) == (status, says)


def test_what_is_no_http_address_is_refused() -> None:
    with pytest.raises(RestFailure, match="--url takes http"):
        RestClient("ftp://x")
