"""`tidemill health`: ask a process how it is, for container health checks

Started every few seconds beside the process it is about, so it imports next to nothing and speaks HTTP over a plain
socket. It asks the process and not the port: `/health/ready`, or `/health/live` with `--live`, which every Tidemill
process answers at the address it is watched at.

Exit status: 0 ready (or live), 1 not, with what the process said on one line, 2 wrong usage.
"""

import argparse
import json
import re
import socket
import sys
import threading
import time
from typing import Any, Final

TIMEOUT_S: Final = 6.0
"""Longer than a process takes to find out that its own event loop hangs (5 s), so that one hears of that."""

ANSWER_BYTES_MAX: Final = 1024 * 1024
"""Of an answer that is read: one with a reason for each of a thousand parts is a tenth of it."""

LINE_CHARACTERS_MAX: Final = 4000
"""Of what is shown; container engines keep the first 4096."""


_Address = tuple[int, int, int, str, Any]
"""One answer of the resolver: family, kind, protocol, canonical name, and what a socket connects to."""


class NoAnswer(Exception):
    """The process did not answer, or not in the way a Tidemill process does; the message is one line."""


def _command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "tidemill health",
        description="Exit with 0 when the process at URL is ready, with 1 and what it said when it is not.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_run)
    parser.add_argument("url", metavar="URL", type=_address, help="http://HOST:PORT, where the process is watched at.")
    parser.add_argument("--live", action="store_true", help="Ask whether it is alive, ready or not.")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=TIMEOUT_S,
        help=f"How long it may take in all. [default: {TIMEOUT_S:g}]",
    )
    return parser


def _address(text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:http://)?(\[[0-9a-fA-F:.%]+\]|[^/:\[\]@]+):(\d{1,5})/?", text)
    if found is None or int(found[2]) > 65_535:
        raise argparse.ArgumentTypeError(f"expected http://HOST:PORT, got {text!r}")
    return found[1].strip("[]"), int(found[2])


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86_400:
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0, got {text!r}")
    return seconds


def _run(options: argparse.Namespace) -> int:
    host, port = options.url
    try:
        well, said = judged(*ask(host, port, "/health/live" if options.live else "/health/ready", options.timeout))
    except NoAnswer as error:
        well, said = False, str(error)
    if well:
        print(said)
        return 0
    print(f"tidemill health: {said}"[:LINE_CHARACTERS_MAX], file=sys.stderr)
    return 1


def ask(host: str, port: int, path: str, timeout_s: float) -> tuple[int, bytes]:
    """Status and body of the answer to a GET; raises NoAnswer."""
    ends = time.monotonic() + timeout_s
    name = f"[{host}]" if ":" in host else host
    request = f"GET {path} HTTP/1.0\r\nHost: {name}:{port}\r\nConnection: close\r\n\r\n".encode()
    answer = bytearray()
    try:
        with _connected(_addresses(host, port, ends), ends) as connection:
            connection.sendall(request)
            while len(answer) <= ANSWER_BYTES_MAX:
                connection.settimeout(_left(ends))
                data = connection.recv(65_536)
                if not data:
                    break
                answer += data
    except TimeoutError:
        raise NoAnswer(f"no answer from {name}:{port} within {timeout_s:g} s") from None
    except (OSError, UnicodeError) as error:
        raise NoAnswer(f"cannot ask {name}:{port}: {getattr(error, 'strerror', None) or error}") from None
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.[01] (\d{3})\b", head)
    if status is None:
        raise NoAnswer(f"what answers at {name}:{port} does not speak HTTP")
    return int(status[1]), body


def _addresses(host: str, port: int, ends: float) -> list[_Address]:
    """What a name stands for; raises TimeoutError once `ends` has passed, as the resolver itself would not.

    Nothing interrupts the C library's look-up, so it is left behind on a thread that nobody waits for.
    """
    found: list[_Address] = []
    failed: list[OSError | UnicodeError] = []

    def look() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            failed.append(error)

    thread = threading.Thread(target=look, name="look-up", daemon=True)
    thread.start()
    thread.join(_left(ends))
    if thread.is_alive():
        raise TimeoutError
    if failed:
        raise failed[0]
    return found


def _connected(addresses: list[_Address], ends: float) -> socket.socket:
    """A connection to the first address that takes one; its timeout is what is left until `ends`."""
    refused: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as error:  # an address of a kind that this machine does not have
            refused = error
            continue
        try:
            connection.settimeout(_left(ends))
            connection.connect(address)
            connection.settimeout(_left(ends))
        except TimeoutError:
            connection.close()
            raise
        except OSError as error:
            connection.close()
            refused = error
        else:
            return connection
    raise refused or OSError("the name has no address")


def _left(ends: float) -> float:
    """Seconds until then, and a moment if there are none: a timeout of 0 means something else to a socket."""
    return max(ends - time.monotonic(), 0.001)


def judged(status: int, body: bytes) -> tuple[bool, str]:
    """Whether the process is well, and what it said in one line."""
    try:
        said = json.loads(body)
        told = str(said["status"])
        parts = [f"{each['what']}: {each['why']}" for each in said.get("reasons", ())]
        parts += [str(said["why"])] if "why" in said else []
    except (ValueError, LookupError, TypeError, AttributeError):
        text = " ".join(body[:200].decode("utf-8", "replace").split())
        return False, f"status {status}, which no Tidemill process says so: {text or 'nothing more'}"
    line = " ".join(told.split()) + (f": {' '.join('; '.join(parts).split())}" if parts else "")
    return status == 200, line


app = _command_line()
"""What `tidemill health` understands."""
