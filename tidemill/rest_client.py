"""A small client of Kafka Connect's REST API

Commands ask one question and end, so the standard library's HTTP is enough. What goes wrong is one `RestFailure` with a
sentence to print: the worker's own message where it sent one, and what to do where nobody answered.
"""

import json
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from typing import Any

DEFAULT_URL = "http://127.0.0.1:8083"
ANSWER_TIMEOUT_S = 90.0  # Apache's worker gives up after as long itself


class RestFailure(Exception):
    """An answer of 400 or above, or none; `status` is 0 where nobody answered."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class RestClient:
    """One worker, by its URL: `http://HOST:PORT`, with a path before it where a proxy has one."""

    def __init__(self, url: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        address = url if "://" in url else f"http://{url}"
        if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
            raise RestFailure(f"--url takes http://HOST:PORT, not {url!r}")
        self.url = address.rstrip("/")
        self._timeout_s = timeout_s

    def ask(self, verb: str, *path: str, body: Any = None, **query: str) -> Any:
        """The answer's JSON, None where it has no body; raises RestFailure."""
        address = "/".join([self.url, *(urllib.parse.quote(part, safe="") for part in path)])
        if query:
            address += f"?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(
            address,
            method=verb,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                return _json(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise RestFailure(_told(error.read(), error.code), error.code) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            said = getattr(reason, "strerror", None) or reason
            raise RestFailure(
                f"no Connect worker answers at {self.url} ({said}): start one with 'tidemill connect start', "
                "or say where it is with --url http://HOST:PORT"
            ) from None


def _json(content: bytes) -> Any:
    return json.loads(content) if content.strip() else None


def _told(content: bytes, status: int) -> str:
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return f"the worker answered {status} {HTTPStatus(status).phrase if status in set(HTTPStatus) else ''}".strip()
