"""One problem: cut, joined, written down and read again"""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.problem import MESSAGE_MAX, Problem, from_json, iso, joined, sentence, shortened, to_json

NOON_MS = 1_700_000_000_000
YEAR_9000_MS = 221_845_392_000_000


def test_a_message_is_one_bounded_line() -> None:
    assert shortened("no route\n  to host ") == "no route to host"
    cut = shortened("x" * 5_000_000)
    assert len(cut) == MESSAGE_MAX and cut.endswith("…")


def test_a_message_can_be_sent() -> None:
    """Names of files may have bytes that are no text."""
    assert shortened("no such file: caf\udce9") == "no such file: caf?"


def test_a_next_try_in_a_distant_future_can_be_written() -> None:
    distant = Problem(message="not before the year 10000", since_ms=0, next_try_ms=10**18)
    assert to_json(distant)["next_try"] == "9999-12-31T23:59:59.999Z"
    assert "next try 9999" in sentence(distant)


def test_nothing_is_no_problem() -> None:
    assert joined([]) is None


def test_the_oldest_comes_first() -> None:
    late = Problem(message="b", since_ms=20, attempts=3, next_try_ms=50)
    early = Problem(message="a", since_ms=10, next_try_ms=70)
    assert joined([late, early]) == Problem(message="a; b", since_ms=10, attempts=3, next_try_ms=50)


def test_a_line_for_those_who_show_nothing_else() -> None:
    assert sentence(Problem(message="no database", since_ms=NOON_MS)) == (
        "no database (since 2023-11-14T22:13:20.000Z)"
    )
    assert sentence(Problem(message="no database", since_ms=NOON_MS, attempts=2, next_try_ms=NOON_MS + 1500)) == (
        "no database (since 2023-11-14T22:13:20.000Z, 2 attempts, next try 2023-11-14T22:13:21.500Z)"
    )


@given(
    st.builds(
        Problem,
        message=st.just("m"),
        since_ms=st.integers(0, YEAR_9000_MS),
        attempts=st.integers(0, 99),
        next_try_ms=st.none() | st.integers(0, YEAR_9000_MS),
    )
)
def test_what_is_written_is_read(problem: Problem) -> None:
    assert from_json(to_json(problem)) == problem


def test_what_is_not_a_problem_is_none() -> None:
    for content in (
        None,
        "x",
        {},
        {"message": 1, "since": iso(0)},
        {"message": "m", "since": "yesterday"},
        {"message": "m", "since": iso(0), "attempts": "often"},
    ):
        assert from_json(content) is None, content
