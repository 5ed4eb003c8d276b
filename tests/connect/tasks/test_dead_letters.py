"""Dead letters whose cluster is away (what they hold is tested with the sink)"""

from collections.abc import Callable
from typing import Any

import pytest

from tidemill.connect.api import NotConnected
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks import dead_letters
from tidemill.connect.tasks.dead_letters import DeadLetters
from tidemill.connect.tolerance import ErrorPolicy, FailedRecord, Stage

pytestmark = pytest.mark.integration


class Read:
    """A record as a consumer hands it over."""

    def __getattr__(self, name: str) -> Callable[[], Any]:
        values = {"timestamp": (0, -1), "headers": None, "key": b"k", "value": b"v"}
        return lambda: values[name]


def test_nothing_sent_is_nothing_to_wait_for(spec: Callable[..., TaskSpec]) -> None:
    letters = DeadLetters(spec("p"), ErrorPolicy(dead_letter_topic="dlq"))
    letters.flush()
    letters.close()


def test_what_is_not_stored_holds_up_the_commit(spec: Callable[..., TaskSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "FLUSH_TIMEOUT_S", 0.1)
    monkeypatch.setattr(DeadLetters, "_create_topic", lambda self: None)
    letters = DeadLetters(spec("p"), ErrorPolicy(dead_letter_topic="dlq"))
    failed = FailedRecord(topic="t", partition=0, offset=0, stage=Stage.TASK_PUT, error=ValueError(), where="x")
    letters.send(Read(), failed)  # type: ignore[arg-type]
    with pytest.raises(NotConnected, match="1 dead letters were not acknowledged"):
        letters.flush()
    letters.close()
