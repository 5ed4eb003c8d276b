"""Named deadlines against a plain dictionary."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.coordination.deadlines import Deadlines

steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abcd"), st.integers(0, 100)),
        st.tuples(st.just("clear"), st.sampled_from("abcd"), st.just(0)),
        st.tuples(st.just("due"), st.just(""), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(steps)
def test_the_same_as_a_dictionary(script: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    now = 0
    for step, key, number in script:
        if step == "set":
            deadlines.set(key, now + number)
            model[key] = now + number
        elif step == "clear":
            deadlines.clear(key)
            model.pop(key, None)
        else:
            now += number
            due = list(deadlines.due(now))
            expected = {name for name, at in model.items() if at <= now}
            assert set(due) == expected
            assert len(due) == len(expected)
            assert [model[name] for name in due] == sorted(model[name] for name in due)
            model = {name: at for name, at in model.items() if at > now}
        assert len(deadlines) == len(model)
        first = deadlines.next_ms()
        assert (first is None) == (not model)
        assert first is None or first <= min(model.values())


def test_moving_later_many_times_keeps_one_entry() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at in range(1000):
        deadlines.set("a", at)
    assert len(deadlines._heap) == 1
    assert list(deadlines.due(998)) == []
    assert deadlines.next_ms() == 999
    assert list(deadlines.due(999)) == ["a"]
    assert deadlines.next_ms() is None


def test_what_one_key_changes_about_the_others_counts_at_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at, key in enumerate("abcd"):
        deadlines.set(key, at)
    taken = []
    for key in deadlines.due(10):
        taken.append(key)
        if key == "a":
            deadlines.clear("b")
            deadlines.set("c", 50)
            deadlines.set("e", 9)
            deadlines.set("d", 8)
    assert taken == ["a", "d", "e"]
    assert deadlines.next_ms() is not None
    assert list(deadlines.due(50)) == ["c"]


def test_a_key_that_is_set_again_waits_for_the_next_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1)
    deadlines.set("b", 2)
    taken = []
    for key in deadlines.due(5):
        taken.append(key)
        deadlines.set(key, 3)
    assert taken == ["a", "b"]
    assert deadlines.next_ms() == 3
    assert list(deadlines.due(5)) == ["a", "b"]
    assert len(deadlines) == 0 and deadlines.next_ms() is None


def test_nothing_is_lost_when_the_caller_fails_on_the_way() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at, key in enumerate("abc"):
        deadlines.set(key, at)

    def handle_all() -> None:
        for key in deadlines.due(5):
            if key == "b":
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        handle_all()
    assert list(deadlines.due(5)) == ["c"]
