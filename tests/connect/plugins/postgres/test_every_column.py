"""Every column type under every mode, against what Debezium was seen to write

`test_source_debezium` runs the two side by side; this needs no Java, because the answers were kept.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.connect.plugins.postgres import every_column

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


@pytest.mark.parametrize("mode", every_column.MODES)
def test_columns_look_as_debezium_writes_them(database: Any, runtime: Callable[..., Any], mode: str) -> None:
    if not database.rows("SELECT FROM pg_available_extensions WHERE name = 'ltree'"):
        pytest.skip("this PostgreSQL comes without contrib: apt-get install postgresql-contrib")
    database.run(*every_column.PREPARE, *every_column.tables(), *every_column.fill())
    running = runtime(database.config() | every_column.MODES[mode], schemas=True, raw=True)
    running.until_streaming()
    snapshot = len(running.records)
    changes = every_column.changes()[:snapshot]
    database.run(*changes)
    records = running.until_records(snapshot + len(changes))
    by_topic: dict[str, list[Any]] = {}
    for record in records:
        by_topic.setdefault(record.topic, []).append((record.key, record.value, None))
    found, expected = every_column.by_column(by_topic), every_column.recorded(mode)
    pairs = [
        (name.partition(".")[2], ours, theirs)
        for name in {**found, **expected}
        for ours, theirs in zip(listed(found.get(name)), listed(expected.get(name)), strict=False)
    ]
    assert len(pairs) > 2000
    unexplained = [
        difference
        for column, ours, theirs in pairs
        for difference in every_column.differences({column: ours}, {column: theirs})
        if not every_column.known(*difference)
    ]
    assert not unexplained


def listed(column: Any) -> list[Any]:
    """A column's schema and then its values."""
    return [every_column.ABSENT] if column is None else [column["schema"], *column["values"]]
