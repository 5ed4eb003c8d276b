"""A transform that puts a field into every row, as `cdc_chain` installs it"""

from dataclasses import replace

from pydantic import BaseModel, Field

from tidemill import Record, transform


class MarkSettings(BaseModel):
    """What Apache's InsertField is told by `static.field` and `static.value`."""

    field: str = Field(alias="static.field", description="The field.")
    value: str = Field(alias="static.value", description="What it holds.")


@transform("mark", version="1.0", uses=["value"])
def mark(cfg: MarkSettings, records: list[Record]) -> list[Record]:
    """Says where a row is from; a deleted one has none."""
    return [
        each if each.value is None else replace(each, value={**each.value, cfg.field: cfg.value}) for each in records
    ]
