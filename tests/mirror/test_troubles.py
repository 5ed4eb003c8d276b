"""One beginning and one end for each trouble, however often it is found."""

from tidemill.mirror.link import State
from tidemill.mirror.troubles import CLUSTER, TOPIC, Problem, TroubleBook, standing, unreachable


def problem(name: str, reason: str = "why") -> Problem:
    return Problem(kind=TOPIC, name=name, reason=reason, remedy="what to do")


def test_a_trouble_keeps_its_beginning_and_is_told_once() -> None:
    book = TroubleBook()
    assert [each.problem.name for each in book.look([problem("a")], 100).begun] == ["a"]
    change = book.look([problem("a", "another reason"), problem("b")], 200)
    assert [each.problem.name for each in change.begun] == ["b"]
    assert [(each.problem.reason, each.since_ms) for each in book.troubles] == [("another reason", 100), ("why", 200)]
    over = book.look([problem("b")], 300)
    assert [(each.problem.name, each.since_ms) for each in over.ended] == [("a", 100)]
    assert not over.begun
    assert [each.since_ms for each in book.look([problem("a"), problem("b")], 400).begun] == [400]


def test_the_same_thing_named_twice_is_one() -> None:
    book = TroubleBook()
    assert len(book.look([problem("a"), problem("a", "x")], 1).begun) == 1
    assert len(book.troubles) == 1


def test_what_to_do_about_a_partition_depends_on_its_state() -> None:
    assert "restart" in standing("t-0", State.FAILED, "x").remedy
    assert "30 seconds" in standing("t-0", State.PARKED, "x").remedy
    assert standing("t-0", State.BACKING_OFF, "x").reason == "backing-off: x"


def test_a_cluster_that_closes_connections_may_want_tls() -> None:
    found = unreachable("B", "b:9092: peer closed the connection")
    assert (found.kind, found.name) == (CLUSTER, "B")
    assert "B.bootstrap.servers" in found.remedy
    assert "B.security.protocol" in found.remedy
    assert "PLAINTEXT" not in unreachable("B", "b:9092: cannot connect").remedy
