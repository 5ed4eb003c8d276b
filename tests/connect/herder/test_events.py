"""What the herder machine hears and says"""

import dataclasses

import pytest

from tidemill.connect.herder import events
from tidemill.connect.herder.events import Assigned
from tidemill.connect.task_spec import TaskId


@pytest.mark.parametrize(
    ("assigned", "connector", "task", "owned"),
    [
        (Assigned(generation=1), "c", None, True),
        (Assigned(generation=1), "c", 7, True),
        (Assigned(generation=1, connectors=frozenset({"c"}), tasks=frozenset()), "c", None, True),
        (Assigned(generation=1, connectors=frozenset({"c"}), tasks=frozenset()), "c", 0, False),
        (Assigned(generation=1, connectors=frozenset(), tasks=frozenset({TaskId("c", 1)})), "c", None, False),
        (Assigned(generation=1, connectors=frozenset(), tasks=frozenset({TaskId("c", 1)})), "c", 1, True),
        (Assigned(generation=1, connectors=frozenset(), tasks=frozenset({TaskId("c", 1)})), "d", 1, False),
    ],
)
def test_what_is_owned(assigned: Assigned, connector: str, task: int | None, owned: bool) -> None:
    assert assigned.owns(connector, task) is owned


def test_every_word_is_a_value() -> None:
    words = [each for each in vars(events).values() if isinstance(each, type) and each.__module__ == events.__name__]
    assert len(words) > 15
    for word in words:
        assert dataclasses.is_dataclass(word) and "__slots__" in vars(word), word
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(object.__new__(word), dataclasses.fields(word)[0].name, None)
