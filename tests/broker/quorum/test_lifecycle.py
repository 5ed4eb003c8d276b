"""A broker's life: registered, heard of, fenced, stopped in order, driven out"""

import random

import pytest

from tidemill.broker.quorum.lifecycle import (
    Action,
    Failed,
    Heartbeat,
    HeartbeatAnswered,
    Leave,
    Lifecycle,
    LifeSettings,
    MetadataTaken,
    Register,
    Registered,
    Stage,
    StandBack,
    Stop,
    Tick,
)
from tidemill.core.error_code import ErrorCode

SETTINGS = LifeSettings()
FENCED = HeartbeatAnswered(is_caught_up=False, is_fenced=True, should_shut_down=False)
ACTIVE = HeartbeatAnswered(is_caught_up=True, is_fenced=False, should_shut_down=False)


def life() -> Lifecycle:
    return Lifecycle(3, now_ms=0, settings=SETTINGS)


def running() -> Lifecycle:
    """Registered with epoch 7 and unfenced at 100 ms."""
    broker = life()
    assert broker.step(Tick(), 0) == [Register()]
    (beat,) = broker.step(Registered(broker_epoch=7), 50)
    assert beat == Heartbeat(broker_epoch=7, metadata_offset=-1, want_shut_down=False)
    broker.step(MetadataTaken(offset=8), 60)
    broker.step(ACTIVE, 100)
    assert broker.stage is Stage.RUNNING
    return broker


def test_it_beats_at_intervals_and_says_how_far_it_is() -> None:
    broker = running()
    assert broker.next_deadline_ms() == 2100
    assert broker.step(Tick(), 2099) == []
    broker.step(MetadataTaken(offset=20), 2099)
    assert broker.step(Tick(), 2100) == [Heartbeat(broker_epoch=7, metadata_offset=19, want_shut_down=False)]
    assert broker.step(Tick(), 9000) == [], "one at a time"


def test_what_it_is_told_is_as_old_as_its_question() -> None:
    """An answer may lie there unread, while the process is paused."""
    broker = running()
    broker.step(Tick(), 2100)
    broker.step(ACTIVE, 9000)
    assert (broker.known_ms, broker.answered_ms) == (2100, 9000)


def test_who_stands_back_says_so_at_once_and_goes_on_saying_it() -> None:
    broker = running()
    (beat,) = broker.step(StandBack(wanted=True), 200)
    assert isinstance(beat, Heartbeat)
    assert beat.want_fence
    assert broker.step(FENCED, 210) == []
    assert broker.stage is Stage.RUNNING
    assert broker.step(StandBack(wanted=True), 220) == [], "that is known"
    (beat,) = broker.step(Tick(), 2210)
    assert isinstance(beat, Heartbeat)
    assert beat.want_fence
    broker.step(FENCED, 2220)
    (beat,) = broker.step(StandBack(wanted=False), 2230)
    assert isinstance(beat, Heartbeat)
    assert not beat.want_fence


def test_who_is_to_stop_does_not_stand_back_any_more() -> None:
    broker = running()
    broker.step(StandBack(wanted=True), 200)
    broker.step(FENCED, 210)
    assert broker.step(Stop(), 220) == [Heartbeat(broker_epoch=7, metadata_offset=7, want_shut_down=True)]


def test_it_is_unfenced_as_soon_as_it_has_taken_in_its_own_registration() -> None:
    broker = life()
    broker.step(Tick(), 0)
    broker.step(Registered(broker_epoch=7), 50)
    assert broker.step(FENCED, 60) == []
    assert broker.step(MetadataTaken(offset=7), 70) == [], "up to there, without it"
    assert broker.step(MetadataTaken(offset=8), 80) == [
        Heartbeat(broker_epoch=7, metadata_offset=7, want_shut_down=False)
    ]
    broker.step(ACTIVE, 90)
    assert (broker.stage, broker.is_fenced) == (Stage.RUNNING, False)


def test_an_id_that_is_still_taken_is_waited_for() -> None:
    broker = life()
    now_ms = 0
    taken = Failed(error=ErrorCode.DUPLICATE_BROKER_REGISTRATION, message="broker 3 is alive")
    while now_ms < 9_000:
        assert broker.step(Tick(), now_ms) == [Register()]
        assert broker.step(taken, now_ms) == []
        deadline_ms = broker.next_deadline_ms()
        assert deadline_ms is not None
        now_ms = deadline_ms
    broker.step(Tick(), now_ms)
    broker.step(Registered(broker_epoch=9), now_ms)
    assert broker.stage is Stage.STARTING


def test_an_id_that_stays_taken_is_anothers() -> None:
    broker = life()
    broker.step(Tick(), 0)
    broker.step(Failed(error=ErrorCode.DUPLICATE_BROKER_REGISTRATION, message="broker 3 is alive"), 0)
    assert broker.step(Tick(), 60_000) == [Leave(reason="broker 3 is alive")]
    assert broker.step(Tick(), 70_000) == []


@pytest.mark.parametrize("error", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION])
def test_what_no_time_mends_is_not_waited_for(error: ErrorCode) -> None:
    broker = life()
    broker.step(Tick(), 0)
    assert broker.step(Failed(error=error, message="of another cluster"), 5) == [Leave(reason="of another cluster")]


def test_without_a_controller_a_start_ends_and_a_running_broker_goes_on() -> None:
    silent = Failed(error=ErrorCode.NETWORK_EXCEPTION)
    broker = life()
    broker.step(Tick(), 0)
    broker.step(silent, 10)
    assert broker.step(Tick(), 60_000) == [Leave(reason="NETWORK_EXCEPTION")]
    broker = running()
    for now_ms in range(2_100, 900_000, 600):
        for action in broker.step(Tick(), now_ms):
            assert isinstance(action, Heartbeat)
            assert broker.step(silent, now_ms) == []
    assert (broker.stage, broker.trouble) == (Stage.RUNNING, "NETWORK_EXCEPTION")


def test_who_was_replaced_leaves_and_says_why() -> None:
    broker = running()
    broker.step(Tick(), 2100)
    (leave,) = broker.step(Failed(error=ErrorCode.STALE_BROKER_EPOCH), 2101)
    assert isinstance(leave, Leave)
    assert leave.reason is not None
    assert "node.id=3" in leave.reason


def test_it_goes_when_others_have_taken_over() -> None:
    broker = running()
    assert broker.step(Stop(), 500) == [Heartbeat(broker_epoch=7, metadata_offset=7, want_shut_down=True)]
    assert broker.step(ACTIVE, 510) == []
    assert broker.step(Tick(), 1010) == [Heartbeat(broker_epoch=7, metadata_offset=7, want_shut_down=True)]
    assert broker.step(HeartbeatAnswered(is_caught_up=True, is_fenced=True, should_shut_down=True), 1020) == [Leave()]


@pytest.mark.parametrize("answered", [True, False])
def test_it_goes_without_that_when_it_takes_too_long(answered: bool) -> None:
    broker = running()
    broker.step(Stop(), 500)
    if answered:
        broker.step(Failed(error=ErrorCode.NETWORK_EXCEPTION), 600)
    assert broker.next_deadline_ms() is not None
    assert broker.step(Tick(), 30_500) == [Leave()]


def test_it_goes_when_there_is_nobody_who_could_let_others_take_over() -> None:
    broker = running()
    broker.step(Stop(), 3000)
    assert broker.step(Failed(error=ErrorCode.NETWORK_EXCEPTION), 3100) == [], "the one it was may just have gone"
    assert broker.step(Tick(), 3600) == [Heartbeat(broker_epoch=7, metadata_offset=7, want_shut_down=True)]
    assert broker.step(Failed(error=ErrorCode.NOT_CONTROLLER), 8100) == [Leave()]


def test_who_is_not_registered_yet_just_goes() -> None:
    broker = life()
    broker.step(Tick(), 0)
    assert broker.step(Stop(), 10) == [Leave()]
    assert broker.step(Registered(broker_epoch=1), 20) == []


@pytest.mark.parametrize("seed", range(50))
def test_it_always_has_something_under_way_or_something_due(seed: int) -> None:
    """Whatever comes in whatever order: never stuck, never two requests at a time."""
    rng = random.Random(seed)
    broker, now_ms, asking = life(), 0, False
    for _ in range(200):
        answers = (Registered(broker_epoch=7), FENCED, ACTIVE, Failed(error=rng.choice(list(ErrorCode))))
        chosen = [Tick(), MetadataTaken(offset=rng.randint(0, 20)), *([Stop()] if rng.random() < 0.01 else [])]
        if asking:
            registering = broker.stage is Stage.REGISTERING
            chosen += [answers[0] if registering else rng.choice(answers[1:3]), answers[3]]
        event = rng.choice(chosen)
        answered = event in answers
        actions: list[Action] = broker.step(event, now_ms)
        if broker.stage is Stage.STOPPED:
            assert isinstance(actions[0], Leave)
            assert broker.next_deadline_ms() is None
            return
        asks = [each for each in actions if isinstance(each, Register | Heartbeat)]
        assert len(asks) <= (answered or not asking)
        asking = bool(asks) or (asking and not answered)
        deadline_ms = broker.next_deadline_ms()
        assert asking or deadline_ms is not None
        now_ms = max(now_ms, rng.choice((now_ms, now_ms + 100, deadline_ms or now_ms)))
