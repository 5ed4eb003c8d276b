"""One part that fails: the others are told, and so is that."""

from structlog.testing import capture_logs

from tidemill.core.runtime.exposition import Family, write
from tidemill.core.runtime.metric_parts import ERRORS, MetricParts


def well() -> bytes:
    return write([Family("a", "gauge", "a", [("", 1)])])


def broken(sign: int = 1) -> bytes:
    if sign < 0:
        raise LookupError("another place")
    raise LookupError("a place")


def test_what_fails_is_left_out_and_counted() -> None:
    parts = MetricParts("a", "b")
    assert parts.written("a", well).endswith(b"a 1\n")
    assert parts.written("b", broken) == b""
    assert parts.written("b", broken) == b""
    lines = parts.text().decode().splitlines()
    assert lines[2:] == [f'{ERRORS}{{part="a"}} 0', f'{ERRORS}{{part="b"}} 2']


def test_a_failure_is_logged_once_for_each_place_it_comes_from() -> None:
    parts = MetricParts("a", "b")
    with capture_logs() as lines:
        for _ in range(3):
            parts.written("a", broken)
            parts.written("a", lambda: broken(-1))
            parts.written("b", broken)
    assert [line["part"] for line in lines] == ["a", "a", "b"]


def test_whoever_asks_learns_what_failed() -> None:
    parts, failed = MetricParts("a", "b"), set[str]()
    with parts.part("a", failed):
        broken()
    with parts.part("b", failed):
        well()
    assert failed == {"a"}
