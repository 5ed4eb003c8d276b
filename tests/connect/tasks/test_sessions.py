"""Sessions that follow one another while something is away"""

import pytest
import structlog
from structlog.testing import capture_logs

from tidemill.connect.api import NotConnected
from tidemill.connect.tasks.control import News, TaskControl
from tidemill.connect.tasks.kafka_clients import ClientLost
from tidemill.connect.tasks.sessions import Sessions


class Control(TaskControl):
    """Waits without waiting."""

    def __init__(self) -> None:
        super().__init__(lambda news: None)
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)


def run(control: Control, *outcomes: Exception | str) -> list[Exception | str]:
    """One session per outcome: an error it ends with, "works" to be healthy and go on to the next, "ends"."""
    sessions = Sessions("c-0", control, structlog.get_logger())
    left = list(outcomes)

    def session() -> None:
        outcome = left.pop(0)
        if outcome == "works":
            sessions.healthy()
            outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome

    sessions.run(session)
    return left


def test_pauses_grow_until_a_session_works() -> None:
    control = Control()
    with capture_logs() as lines:
        left = run(
            control, NotConnected("away"), ClientLost("lost"), "works", NotConnected("again"), "works", "ends", "never"
        )
    assert left == ["never"]
    assert control.waits == [1, 2, 1]
    assert control.current_problem() is None
    assert [line["event"] for line in lines].count("connected again") == 2


def test_what_is_away_is_told() -> None:
    control = Control()
    run(control, NotConnected("no route to the database"), NotConnected("no route to the database"), "ends")
    problem = control.current_problem()
    assert problem is not None and problem.message == "no route to the database"
    assert problem.attempts == 2 and problem.next_try_ms is not None


def test_what_would_fail_again_fails_the_task() -> None:
    control = Control()
    with pytest.raises(ValueError, match="a bug"):
        run(control, NotConnected("away"), ValueError("a bug"))
    assert control.waits == [1]


@pytest.mark.parametrize("wish", ["resume", "stop"])
def test_a_task_that_is_paused_between_two_sessions_says_so_and_tries_nothing(wish: str) -> None:
    news: list[News] = []
    held: list[object] = []

    class Paused(TaskControl):
        def wait(self, seconds: float) -> None:
            self.request_pause()  # during the first pause between sessions

        def wait_while_paused(self, seconds: float) -> None:
            held.append(self.current_problem())
            if wish == "stop":
                self.request_stop(1_000)
            self.request_resume()

    control = Paused(news.append)
    outcomes = [NotConnected("away")]
    sessions = Sessions("c-0", control, structlog.get_logger())

    def session() -> None:
        if outcomes:
            raise outcomes.pop()

    sessions.run(session)
    assert held == [None]
    assert news == [News.STARTED, News.PAUSED, *([News.RESUMED] if wish == "resume" else [])]


def test_what_a_stop_interrupts_is_not_told() -> None:
    control = Control()
    sessions = Sessions("c-0", control, structlog.get_logger())

    def session() -> None:
        control.request_stop(1_000)
        raise NotConnected("stopped while connecting")

    sessions.run(session)
    assert control.waits == []
    assert control.current_problem() is None


def test_a_stop_ends_the_pauses() -> None:
    control = Control()
    control.request_stop(1_000)
    assert run(control, "never") == ["never"]
