"""What a flow carries."""

import pytest

from tidemill.mirror.naming import DefaultPolicy
from tidemill.mirror.selection import BadPattern, NameFilter, TopicSelection, compile_patterns

DEFAULT_EXCLUDE = (r".*[\-\.]internal", r".*\.replica", "__.*")


def selection(topics: tuple[str, ...] = (".*",), heartbeats: bool = True) -> TopicSelection:
    return TopicSelection(
        policy=DefaultPolicy(),
        topics=NameFilter.of(topics, DEFAULT_EXCLUDE),
        target_alias="B",
        heartbeats=heartbeats,
    )


@pytest.mark.parametrize(
    ("topic", "taken"),
    [
        ("orders", True),
        ("C.orders", True),
        ("B.orders", False),
        ("__consumer_offsets", False),
        ("mm2-offset-syncs.B.internal", False),
        ("tidemill-offset-map.C.internal", False),
        ("orders.replica", False),
        ("heartbeats", True),
        ("C.heartbeats", True),
        ("B.heartbeats", False),
    ],
)
def test_default_lists(topic: str, taken: bool) -> None:
    assert selection().takes(topic) is taken


def test_heartbeats_travel_whatever_the_list_says() -> None:
    assert selection(topics=("orders",)).takes("heartbeats")
    assert not selection(topics=("orders",)).takes("payments")
    assert not selection(heartbeats=False).takes("heartbeats")


def test_patterns_match_whole_names() -> None:
    pattern = compile_patterns(["a.c", "x|y"])
    assert [bool(pattern.fullmatch(name)) for name in ("abc", "abcd", "x", "yy")] == [True, False, True, False]
    assert not compile_patterns([]).fullmatch("")


def test_a_bad_pattern_is_named() -> None:
    with pytest.raises(BadPattern, match=r"'\*\.log' is not a regular expression"):
        compile_patterns(["ok", "*.log"])
