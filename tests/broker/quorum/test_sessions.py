"""Sessions of brokers: who was heard of lately, what late words mean, and a controller that was stopped itself."""

import uuid

from tidemill.broker.quorum.image import BrokerImage
from tidemill.broker.quorum.sessions import LOOK_INTERVAL_MS, Sessions

TIMEOUT_MS = 9_000


def broker(node_id: int, *, epoch: int = 1, fenced: bool = False) -> BrokerImage:
    return BrokerImage(
        node_id=node_id, epoch=epoch, incarnation_id=uuid.UUID(int=epoch), end_points=(), rack=None, fenced=fenced
    )


BROKERS = {1: broker(1), 2: broker(2), 3: broker(3, fenced=True)}


def look(sessions: Sessions, brokers: dict[int, BrokerImage], start_ms: int, end_ms: int) -> list[tuple[int, int]]:
    """As somebody does who looks as often as is asked for."""
    found: list[tuple[int, int]] = []
    for now_ms in range(start_ms, end_ms + 1, LOOK_INTERVAL_MS):
        found += sessions.expired(brokers, now_ms)
    return found


def test_a_controller_begins_with_full_sessions_of_those_who_are_not_fenced() -> None:
    sessions = Sessions(timeout_ms=TIMEOUT_MS)
    sessions.begin(BROKERS, 0)
    assert [sessions.is_live(node, 8_999) for node in (1, 2, 3)] == [True, True, False]
    assert look(sessions, BROKERS, 0, 8_999) == []
    assert look(sessions, BROKERS, 9_000, 9_000) == [(1, 1), (2, 1)]


def test_who_is_heard_of_stays_and_who_is_not_is_named_until_fenced() -> None:
    sessions = Sessions(timeout_ms=TIMEOUT_MS)
    sessions.begin(BROKERS, 0)
    look(sessions, BROKERS, 0, 5_000)
    sessions.heard(1, 1, 5_000)
    assert look(sessions, BROKERS, 6_000, 10_000) == [(2, 1), (2, 1)]
    assert not sessions.is_live(2, 10_000)
    assert look(sessions, {**BROKERS, 2: broker(2, fenced=True)}, 11_000, 13_000) == []
    assert sessions.expired(BROKERS, 14_000) == ((1, 1),)


def test_an_earlier_incarnation_is_not_listened_to() -> None:
    sessions = Sessions(timeout_ms=TIMEOUT_MS)
    sessions.heard(1, 5, 0)
    sessions.heard(1, 4, 8_000)
    assert not sessions.is_live(1, 9_000)
    sessions.forget(1, 4)
    assert sessions.is_live(1, 8_000)
    sessions.forget(1, 5)
    assert not sessions.is_live(1, 8_000)


def test_a_broker_that_is_not_fenced_and_was_never_heard_of_gets_a_session() -> None:
    sessions = Sessions(timeout_ms=TIMEOUT_MS)
    sessions.begin({}, 0)
    assert look(sessions, {1: broker(1)}, 0, 8_000) == []
    sessions.heard(1, 1, 8_000)
    again = {1: broker(1, epoch=7)}
    assert look(sessions, again, 9_000, 17_000) == []
    assert look(sessions, again, 18_000, 18_000) == [(1, 7)]


def test_a_controller_that_was_stopped_blames_nobody() -> None:
    sessions = Sessions(timeout_ms=TIMEOUT_MS)
    sessions.begin(BROKERS, 0)
    look(sessions, BROKERS, 0, 4_000)
    assert sessions.expired(BROKERS, 60_000) == ()
    sessions.heard(1, 1, 60_000)
    assert look(sessions, BROKERS, 61_000, 64_000) == [(2, 1)], "what was left of the session is not a new one"
    assert (1, 1) in look(sessions, BROKERS, 65_000, 69_000), "and no session is longer than one"


def test_others_have_to_know_that_a_broker_leads_nothing() -> None:
    sessions = Sessions(timeout_ms=TIMEOUT_MS)
    sessions.begin(BROKERS, 0)
    assert not sessions.others_know(1, BROKERS, 0)
    sessions.heard(1, 1, 1_000, left_at=50)
    assert not sessions.others_know(1, BROKERS, 1_000)
    sessions.heard(2, 1, 1_000, metadata_offset=48)
    assert not sessions.others_know(1, BROKERS, 1_000)
    sessions.heard(1, 1, 2_000, left_at=60)
    sessions.heard(2, 1, 2_000, metadata_offset=49)
    assert sessions.others_know(1, BROKERS, 2_000), "what counts is the first time; fenced ones need not know"
    assert sessions.others_know(1, {1: BROKERS[1]}, 2_000)


def test_who_is_not_heard_of_is_not_waited_for() -> None:
    sessions = Sessions(timeout_ms=TIMEOUT_MS)
    sessions.begin(BROKERS, 0)
    sessions.heard(1, 1, 8_000, left_at=50)
    assert not sessions.others_know(1, BROKERS, 8_999)
    assert sessions.others_know(1, BROKERS, 9_000)


def test_the_session_of_who_is_gone_is_over_until_it_says_otherwise() -> None:
    sessions = Sessions(timeout_ms=9_000)
    brokers = {1: broker(1, epoch=7)}
    sessions.heard(1, 7, 0)
    sessions.end(1, 6, 100)
    assert sessions.is_live(1, 100), "that was another incarnation"
    sessions.end(1, 7, 100)
    assert not sessions.is_live(1, 100)
    assert sessions.expired(brokers, 100) == ((1, 7),)
    sessions.heard(1, 7, 200)
    assert sessions.expired(brokers, 300) == ()
