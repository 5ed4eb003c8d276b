"""Apache's Connect worker answers the tools as it was recorded to

The calls of `tests/golden` go to a worker of Apache Kafka: what the tools are said to need is what it gives them, and
the recorded answers, with which our worker is compared, are the answers it gives today.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers
from tests.golden.record_connect_tools import GOLDEN, record

pytestmark = [
    pytest.mark.integration,
    pytest.mark.java,
    pytest.mark.kafka_peer,
    pytest.mark.timeout(300),
]


def steady(kept: dict[str, Any]) -> dict[str, Any]:
    """An answer without its lists' elements: a worker just written to may not have its tasks yet."""
    kinds = {where: types for where, types in kept.get("kinds", {}).items() if "[]" not in where}
    return {**kept, "kinds": kinds}


def test_apaches_worker_serves_the_tools_with_the_recorded_answers(tmp_path: Path) -> None:
    reason = peers.available()
    if reason:
        pytest.skip(f"Apache Connect cannot be started here: {reason}")
    answers = record(tmp_path)
    assert [each for each in answers if each["unserved"]] == []
    recorded = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    assert [steady(each["kept"]) for each in answers] == [steady(each) for each in recorded]
