"""The door to the core"""

import subprocess
import sys

import pytest

from tidemill.spark_sink import core_api


def test_every_promised_name_is_there() -> None:
    assert all(getattr(core_api, name) is not None for name in core_api.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = core_api.nonsense


def test_planning_does_not_import_what_only_reading_needs() -> None:
    heavy = ("tidemill.core.client.cluster", "tidemill.core.records.record", "confluent_kafka", "pandas", "deltalake")
    script = f"import sys, tidemill.spark_sink.source; print([name for name in {heavy!r} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"
