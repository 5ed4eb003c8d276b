"""What is left, and that the statements that are given drop it"""

import re
from typing import Any

import pytest

from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.source import postgres_source

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


def test_the_statements_drop_what_is_left(database: Any, runtime: Any) -> None:
    settings = database.config(publication_name='Odd "Name"')
    running = runtime(settings)
    running.until_streaming()
    running.task.stop()
    assert postgres_source.left_behind is not None
    for sentence in postgres_source.left_behind(PostgresConfig.model_validate(settings)):
        assert database.name in sentence
        database.run(re.sub(".*drop it with ", "", sentence))
    assert database.rows("SELECT FROM pg_replication_slots WHERE database = current_database()") == []
    assert database.rows("SELECT FROM pg_publication") == []


def test_a_slot_that_is_dropped_on_stop_is_not_left(database: Any) -> None:
    assert postgres_source.left_behind is not None
    config = PostgresConfig.model_validate(database.config(slot_drop_on_stop="true"))
    [publication] = postgres_source.left_behind(config)
    assert "DROP PUBLICATION" in publication
