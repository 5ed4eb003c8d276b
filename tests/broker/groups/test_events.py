"""Events and actions are values: equal by content, unchangeable, made of what can be compared."""

import dataclasses
import inspect

import pytest

from tidemill.broker.groups import events


def values() -> list[type]:
    found = [cls for _, cls in inspect.getmembers(events, dataclasses.is_dataclass)]
    return [cls for cls in found if cls.__module__ == events.__name__]


@pytest.mark.parametrize("cls", values())
def test_every_event_is_a_frozen_value_with_named_fields(cls: type) -> None:
    parameters = cls.__dataclass_params__  # type: ignore[attr-defined]
    assert parameters.frozen
    assert parameters.eq
    assert hasattr(cls, "__slots__")
    assert all(field.kw_only for field in dataclasses.fields(cls))


def test_every_request_says_under_which_id_it_is_answered() -> None:
    for cls in (
        events.JoinGroup,
        events.SyncGroup,
        events.Heartbeat,
        events.LeaveGroup,
        events.CommitOffsets,
        events.DeleteGroup,
    ):
        assert {"request_id", "group_id"} <= {field.name for field in dataclasses.fields(cls)}
