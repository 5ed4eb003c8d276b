"""The demo's last line and its exit status say the same; the whole of it: tests/integration/test_demo.py."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from tests.tidemill.demo.test_pipeline import DIFFERENT, EQUAL, seen
from tidemill.demo import cli
from tidemill.demo.pipeline import Counts, Outcome


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def ended_with(outcome: Outcome) -> type:
    """A pipeline without parts that ends so."""

    class Ended:
        def __init__(self, home: Path, **options: object) -> None:
            self.seconds: dict[str, float] = {}
            self.load = SimpleNamespace(
                start=lambda changes: None, wait=lambda: None, running=False, progress=SimpleNamespace(changes=0)
            )

        def start(self, rows: int) -> None: ...

        def close(self) -> None: ...

        def wait_equal(self, idle_s: float, on_wait: Callable[[Counts], None]) -> Outcome:
            return outcome

    return Ended


@pytest.mark.parametrize(
    ("outcome", "ok"), [(seen(EQUAL, 7, 7), True), (seen(EQUAL, 7, 6), False), (seen(DIFFERENT, 7, 7), False)]
)
def test_the_last_line_and_the_exit_status_agree(
    outcome: Outcome,
    ok: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(cli, "Pipeline", ended_with(outcome))
    with pytest.raises(typer.Exit) as ended:
        cli.demo(folder=tmp_path)
    out, err = capsys.readouterr()
    result = json.loads(out.splitlines()[-1])
    assert (result["ok"], ended.value.exit_code) == (ok, 0 if ok else 1)
    assert result["equal"] == outcome.comparison.equal
    assert ("are in the second cluster" in err) == (outcome.counts.captured != outcome.counts.mirrored)


def test_a_demo_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="nothing to capture"):
        cli.demo(rows=0, changes=0, folder=tmp_path)
