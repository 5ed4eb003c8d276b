"""A transform that puts a field into every row, as `cdc_chain` installs it"""

from typing import Any

from pydantic import BaseModel, Field

from tidemill import transform


class MarkSettings(BaseModel):
    """What Apache's InsertField is told by `static.field` and `static.value`."""

    field: str = Field(alias="static.field", description="The field.")
    value: str = Field(alias="static.value", description="What it holds.")


@transform("mark", version="1.0")
def mark(cfg: MarkSettings, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Says where a row is from."""
    return [{**row, cfg.field: cfg.value} for row in rows]
