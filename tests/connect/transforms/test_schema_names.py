"""Names of schemas as Avro accepts them"""

import pytest

from tidemill.connect.transforms.schema_names import ADJUSTERS


@pytest.mark.parametrize(
    ("mode", "name", "expected"),
    [
        ("none", "1.2ä-x", "1.2ä-x"),
        ("avro", "1.2ä-x", "_1.2__x"),
        ("avro", "a.b_c", "a.b_c"),
        ("avro_unicode", "1.2ä", "_u0031.2_u00e4"),
        ("avro_unicode", "a_b", "a_u005fb"),
    ],
)
def test_what_is_not_allowed_is_replaced(mode: str, name: str, expected: str) -> None:
    assert ADJUSTERS[mode](name) == expected
