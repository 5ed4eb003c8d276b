"""Chance that begins somewhere"""

import uuid

from tidemill.core.runtime.chance import chance_from


def test_the_same_beginning_is_the_same_course() -> None:
    one, two, other = (chance_from(uuid.UUID(int=seed)) for seed in (1, 1, 2))
    course = [one.random() for _ in range(5)]
    assert [two.random() for _ in range(5)] == course
    assert [other.random() for _ in range(5)] != course
