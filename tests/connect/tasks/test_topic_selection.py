"""Topics by name and by pattern"""

import pytest

from tidemill.connect.tasks.topic_selection import TopicSelection

EXISTING = ["a", "a.b", "tmp-a", "__consumer_offsets", "b"]


def test_names_are_taken_as_they_are() -> None:
    selection = TopicSelection.from_config({"topics": " a, later ,,"})
    assert not selection.by_pattern
    assert selection.matching(EXISTING) == {"a", "later"}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [("a", {"a"}), ("a.*", {"a", "a.b"}), ("(?!tmp-).*", {"a", "a.b", "b"}), (r"\w", {"a", "b"}), ("x", set())],
)
def test_a_pattern_matches_whole_names_and_no_internal_topics(pattern: str, found: set[str]) -> None:
    selection = TopicSelection.from_config({"topics.regex": pattern})
    assert selection.by_pattern
    assert selection.matching(EXISTING) == found


def test_nothing_selected_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"topics or topics\.regex"):
        TopicSelection.from_config({"topics": " , "})
    with pytest.raises(ValueError, match=r"is not a pattern"):
        TopicSelection.from_config({"topics.regex": "("})
