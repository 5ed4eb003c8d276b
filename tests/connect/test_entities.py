"""JSON bodies: what is absent, what is null, what order"""

import pytest
from pydantic import ValidationError

from tidemill.connect.entities import (
    ConfigInfo,
    ConfigInfos,
    ConfigValueInfo,
    ConnectorOffsets,
    ConnectorState,
    ConnectorStateInfo,
    PluginInfo,
    TaskState,
    body,
)


def test_empty_traces_and_versions_are_absent() -> None:
    state = ConnectorStateInfo(
        name="c",
        connector=ConnectorState(state="RUNNING", worker_id="w:1"),
        tasks=(TaskState(id=0, state="FAILED", worker_id="w:1", trace="boom", version="1.0"),),
        type="source",
    )
    assert body(state) == {
        "name": "c",
        "connector": {"state": "RUNNING", "worker_id": "w:1"},
        "tasks": [{"id": 0, "state": "FAILED", "worker_id": "w:1", "trace": "boom", "version": "1.0"}],
        "type": "source",
    }
    assert list(body(state)["tasks"][0]) == ["id", "state", "worker_id", "trace", "version"]


def test_a_plugins_class_is_called_class() -> None:
    assert body(PluginInfo(plugin_class="X", type="sink")) == {"class": "X", "type": "sink"}


def test_an_unknown_setting_has_a_null_definition_and_a_null_value() -> None:
    value = ConfigValueInfo(name="x", value=None, errors=("bad",))
    infos = ConfigInfos(name="X", error_count=1, groups=(), configs=(ConfigInfo(definition=None, value=value),))
    assert body(infos)["configs"] == [
        {
            "definition": None,
            "value": {"name": "x", "value": None, "recommended_values": [], "errors": ["bad"], "visible": True},
        }
    ]
    assert infos.problems() == ["bad"]


@pytest.mark.parametrize(
    "content", [[], {}, {"offsets": 1}, {"offsets": [{"partition": {}}]}, {"offsets": [], "more": 1}]
)
def test_offsets_that_are_none(content: object) -> None:
    with pytest.raises(ValidationError):
        ConnectorOffsets.model_validate(content)
