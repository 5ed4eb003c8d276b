"""Events and actions are values: equal by content, fixed once made."""

import dataclasses
import typing

import pytest

from tidemill.mirror import link_events
from tidemill.mirror.link_events import Action, Event, Fetch, Reset


@pytest.mark.parametrize("kind", [*typing.get_args(Event), *typing.get_args(Action)])
def test_all_are_frozen_values(kind: type) -> None:
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert hasattr(kind, "__slots__")


def test_equality_is_by_content() -> None:
    assert Fetch(turn=1, offset=2, max_bytes=3) == Fetch(turn=1, offset=2, max_bytes=3)
    assert Fetch(turn=1, offset=2, max_bytes=3) != Fetch(turn=2, offset=2, max_bytes=3)


def test_events_and_actions_do_not_overlap() -> None:
    assert not set(typing.get_args(Event)) & set(typing.get_args(Action))


def test_resets_are_named_as_kafka_names_them() -> None:
    assert [reset.value for reset in Reset] == ["earliest", "latest", "none"]
    assert link_events.Trouble.RETRY is not link_events.Trouble.PARK
