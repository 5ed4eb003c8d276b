"""A certificate in use, and what becomes of it when its file changes"""

import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.certificates import Authority
from tidemill.broker.tls_watch import ListenerTls
from tidemill.core.runtime.tls import TlsProblem
from tidemill.core.security.tls_settings import TlsSettings


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def store(authority: Authority, tmp_path: Path) -> Path:
    file = tmp_path / "store.pem"
    file.write_text(authority.signed("/CN=first").both.read_text())
    return file


def watched(store: Path) -> ListenerTls:
    return ListenerTls("SSL", TlsSettings(keystore_location=str(store)))


async def test_a_file_that_stays_as_it_is_is_not_read_again(store: Path) -> None:
    tls = watched(store)
    context = tls.context()
    await tls.refresh()
    assert tls.context() is context
    assert tls.reloads == 0


async def test_a_new_file_is_taken(authority: Authority, store: Path) -> None:
    tls = watched(store)
    store.write_text(authority.signed("/CN=second").both.read_text() + "\n")
    with capture_logs() as lines:
        await tls.refresh()
    assert tls.certificate.subject == "CN=second"
    assert [line["event"] for line in lines] == ["certificate changed"]
    assert (tls.reloads, tls.reload_failures, tls.stale) == (1, 0, None)


async def test_a_bad_file_changes_nothing_and_is_told_once(authority: Authority, store: Path) -> None:
    tls = watched(store)
    store.write_text("nonsense")
    with capture_logs() as lines:
        for _ in range(3):
            await tls.refresh()
    assert tls.certificate.subject == "CN=first"
    assert [line["event"] for line in lines] == ["new certificate cannot be used; the one before stays"]
    assert "is not PEM" in str(tls.stale)
    store.unlink()
    await tls.refresh()
    assert "No such file" in str(tls.stale)
    assert tls.reload_failures == 2
    store.write_text(authority.signed("/CN=third").both.read_text())
    await tls.refresh()
    assert (tls.certificate.subject, tls.stale) == ("CN=third", None)


def test_nothing_to_show_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(TlsProblem, match="No such file"):
        watched(tmp_path / "none.pem")


@pytest.mark.parametrize(
    ("days", "level", "says"),
    [(30, "info", ""), (3, "warning", "within a week"), (-1, "warning", "has expired")],
)
def test_an_end_that_is_near_is_warned_of(
    authority: Authority, tmp_path: Path, days: int, level: str, says: str
) -> None:
    tls = watched(authority.signed(days=days).both)
    with capture_logs() as lines:
        tls.tell("certificate", now_s=time.time())
    assert lines[0]["log_level"] == level
    assert says in lines[0].get("reason", "")
