"""Every setting of a file with its value and where that came from."""

import pytest

from tidemill.core.config import ConfigError, parse_properties
from tidemill.mirror.effective import effective_settings

TEXT = """
clusters = A, B
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
A->B.enabled = true
topics = all.*
A->B.topics = mine.*, yours
emit.checkpoints.enabled = false
"""


def test_the_flows_own_key_then_the_bare_one_then_the_default() -> None:
    rows = {row.name: (row.value, row.given_as) for row in effective_settings(parse_properties(TEXT))}
    assert rows["A->B.topics"] == ("mine.*, yours", "A->B.topics")
    assert rows["A->B.emit.checkpoints.enabled"] == ("false", "emit.checkpoints.enabled")
    assert rows["A->B.replication.factor"] == ("2", None)
    assert rows["B.consumer.isolation.level"] == ("read_committed", None)
    assert "B->A.topics" not in rows


def test_a_file_that_would_not_start_is_not_shown() -> None:
    with pytest.raises(ConfigError):
        effective_settings(parse_properties(TEXT + "topcs = x\n"))
