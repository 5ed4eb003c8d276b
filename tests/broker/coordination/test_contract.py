"""Events and actions are values, whatever is coordinated."""

import dataclasses
import inspect

import pytest

from tidemill.broker.coordination import contract


def values() -> list[type]:
    found = [cls for _, cls in inspect.getmembers(contract, dataclasses.is_dataclass)]
    return [cls for cls in found if cls.__module__ == contract.__name__]


@pytest.mark.parametrize("cls", values())
def test_every_event_is_a_frozen_value_with_named_fields(cls: type) -> None:
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert hasattr(cls, "__slots__")
    assert all(field.kw_only for field in dataclasses.fields(cls))


def test_actions_are_told_apart_by_what_they_say() -> None:
    said = contract.Append(token=1, subject="a", records=(b"x",))
    assert said == contract.Append(token=1, subject="a", records=(b"x",))
    assert said != contract.Append(token=2, subject="a", records=(b"x",))
    assert contract.Reply(request_id=1, response="yes").after is None
