"""The verdict: every kind of difference is found, every spelling of the same value is not."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from tidemill.demo.compare import compare, plain, read_warehouse


def test_equal_tables() -> None:
    rows = {1: {"id": 1, "name": "Ada"}}
    assert compare(rows, rows).equal


def test_missing_surplus_and_changed_rows_are_named() -> None:
    source = {1: {"id": 1, "name": "Ada"}, 2: {"id": 2, "name": "Bo"}}
    warehouse = {2: {"id": 2, "name": "Bob"}, 3: {"id": 3, "name": "Eve"}}
    result = compare(source, warehouse)
    assert not result.equal
    assert result.differences == (
        "row 1 is missing in the warehouse",
        "row 2, column name: source 'Bo', warehouse 'Bob'",
        "row 3 should not be in the warehouse",
    )


def test_a_column_that_one_side_lacks_is_a_difference() -> None:
    assert not compare({1: {"id": 1, "note": None}}, {1: {"id": 1}}).equal


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (UUID(int=5), str(UUID(int=5))),
        (Decimal("1.50"), Decimal("1.5")),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))),
        (b"\x01", memoryview(b"\x01")),
    ],
)
def test_spellings_of_one_value_are_equal(left: object, right: object) -> None:
    assert plain(left) == plain(right)


def test_text_that_only_looks_like_json_stays_text() -> None:
    assert plain("{not json") == "{not json"


def test_a_warehouse_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    assert read_warehouse(tmp_path / "nothing") == {}
