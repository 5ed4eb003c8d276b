"""Filter and the predicates: they look at nothing that would have to be read"""

import pytest

from tests.connect.transforms.options_of import made
from tidemill.connect.api import Predicate, Record


@pytest.mark.parametrize(
    ("name", "options"), [("Filter", {}), ("HasHeaderKey", {"name": "h"}), ("RecordIsTombstone", {})]
)
def test_nothing_is_read(name: str, options: dict[str, str]) -> None:
    part = made(name, **options)
    assert not part.uses_key and not part.uses_value


def test_bytes_are_no_tombstone() -> None:
    tombstone = made("RecordIsTombstone")
    assert isinstance(tombstone, Predicate)
    assert [tombstone.test(Record(value=value)) for value in (b"", b"null", None)] == [False, False, True]
