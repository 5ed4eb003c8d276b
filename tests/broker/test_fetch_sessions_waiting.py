"""Requests that wait for what their session's quiet partitions may bring"""

from tests.broker.fetch_sessions_world import FOLLOWER, Log, places, request, sessions, sources
from tidemill.broker.fetch_sessions import FetchSessions, FetchTurn
from tidemill.broker.replication.moved import Moved


class Request:
    """One that waits."""

    def __init__(self) -> None:
        self.heard: list[Moved] = []

    def hear(self, moved: Moved) -> None:
        self.heard.append(moved)


def follower_waits(cache: FetchSessions, log: "Log", offset: int) -> tuple[int, FetchTurn, Request]:
    """A follower's session of a partition that it holds up to there, the request that waits, and its turn."""
    turn = cache.begin(request({("t", 0): offset}, **FOLLOWER), 15, 0)
    session_id = cache.finish(turn, [log.data(0, offset)], 0, sources({0: log})).session_id
    turn, waiting = cache.begin(request({}, session_id, 1, **FOLLOWER), 15, 0), Request()
    turn.wait(waiting)
    return session_id, turn, waiting


def test_a_request_that_waits_hears_what_becomes_of_quiet_partitions() -> None:
    log = Log(end=5, stable=5, beyond=2)
    _, turn, waiting = follower_waits(sessions(), log, 7)
    log.start = 1
    log.stable = 6
    log.beyond = 3
    assert waiting.heard == [Moved.OTHER, Moved.COMMITTED, Moved.APPENDED], "an append, too, once"
    log.beyond = 4
    assert len(waiting.heard) == 3, "it has been told to look"
    assert list(turn.want_moved()) == [0]
    log.start = 2
    assert len(waiting.heard) == 3, "what is read is quiet no more"


def test_a_request_that_waits_no_longer_hears_nothing_and_the_next_one_reads_what_has_moved() -> None:
    log, cache = Log(end=5, stable=5), sessions()
    session_id, turn, waiting = follower_waits(cache, log, 5)
    turn.leave(Request())
    log.start = 1
    turn.leave(waiting)
    log.beyond = 1
    assert waiting.heard == [Moved.OTHER], "who has never waited does not leave for another"
    assert places(cache.begin(request({}, session_id, 2, **FOLLOWER), 15, 0)) == [("t", 0)]


def test_a_request_whose_session_ends_while_it_waits_looks_at_everything_itself() -> None:
    log, cache = Log(end=5, stable=5), sessions()
    session_id, turn, waiting = follower_waits(cache, log, 5)
    cache.begin(request({}, session_id, -1, **FOLLOWER), 15, 0)
    assert (waiting.heard, len(log.quiet), list(turn.want_moved())) == ([Moved.APPENDED], 0, [0])
    assert cache.finish(turn, [log.data(0, 5)], 0, sources({0: log})).session_id == session_id
    assert (len(log.quiet), len(log.copied)) == (0, 0), "nothing is left of it"


def test_a_request_whose_session_ended_before_it_waits_does_so_too() -> None:
    log, cache = Log(end=5, stable=5), sessions()
    turn = cache.begin(request({("t", 0): 5}, **FOLLOWER), 15, 0)
    session_id = cache.finish(turn, [log.data(0, 5)], 0, sources({0: log})).session_id
    turn = cache.begin(request({}, session_id, 1, **FOLLOWER), 15, 0)
    cache.begin(request({}, session_id, -1, **FOLLOWER), 15, 0)
    assert (places(turn), list(turn.want_moved())) == ([], [0])


def test_a_request_that_was_overtaken_takes_nothing_from_the_one_that_counts() -> None:
    log, cache = Log(end=5, stable=5), sessions()
    session_id, overtaken, _ = follower_waits(cache, log, 5)
    turn = cache.begin(request({}, session_id, 2, **FOLLOWER), 15, 0)
    log.beyond = 1
    assert (list(overtaken.want_moved()), list(turn.want_moved())) == ([], [0])
