"""Options under Kafka's names"""

from tidemill.connect.settings import setting_names
from tidemill.connect.transforms import options


def test_names_are_kafkas() -> None:
    assert setting_names(options.InsertFieldOptions) == [
        "replace.null.with.default",
        "topic.field",
        "partition.field",
        "offset.field",
        "timestamp.field",
        "static.field",
        "static.value",
    ]
    assert setting_names(options.NoOptions) == []
