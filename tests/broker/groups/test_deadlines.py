"""Named deadlines against a plain dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from broker.groups.deadlines import Deadlines

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
            due = deadlines.due(now)
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
    assert deadlines.due(998) == []
    assert deadlines.next_ms() == 999
    assert deadlines.due(999) == ["a"]
    assert deadlines.next_ms() is None
