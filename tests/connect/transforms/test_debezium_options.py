"""The options of Debezium's transformations: defaults, and values in Debezium's words"""

import pytest
from pydantic import BaseModel, ValidationError

from tidemill.connect.transforms.debezium_options import ExtractNewRecordStateOptions
from tidemill.connect.transforms.registry import OF_DEBEZIUM


def test_values_are_read_in_any_case() -> None:
    options = ExtractNewRecordStateOptions.model_validate(
        {"delete.tombstone.handling.mode": "REWRITE", "drop.fields.from.key": "True"}
    )
    assert (options.handling, options.drop_from_key) == ("rewrite", True)


@pytest.mark.parametrize("given", ["yes", "1", ""])
def test_a_flag_is_true_or_false(given: str) -> None:
    with pytest.raises(ValidationError, match="Expected value to be either true or false"):
        ExtractNewRecordStateOptions.model_validate({"drop.fields.from.key": given})


@pytest.mark.parametrize("model", [each.config for each in OF_DEBEZIUM])
def test_every_option_says_what_it_does(model: type[BaseModel]) -> None:
    assert all(info.description and info.alias for info in model.model_fields.values())
