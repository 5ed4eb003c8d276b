"""ReplaceField: beyond what Kafka was asked (see test_registry)"""

import pytest

from tests.connect.transforms.options_of import applied, made
from tidemill.connect.api import InvalidConfig


@pytest.mark.parametrize("renames", ["a", "a:", ":b", "a:b:c"])
def test_a_rename_that_makes_no_sense_is_told(renames: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        made("ReplaceField$Value", renames=renames)
    assert caught.value.field_name == "renames"


def test_names_may_change_places() -> None:
    assert applied(made("ReplaceField$Value", renames="a:b,b:a"), {"a": 1, "b": 2}).value == {"b": 1, "a": 2}
