"""Filter, HasHeaderKey and RecordIsTombstone: records left out, and which"""

from tidemill.connect.api import Predicate, Record
from tidemill.connect.transforms.options import HasHeaderKeyOptions
from tidemill.connect.transforms.role import RecordTransform


class Filter(RecordTransform):
    """Leaves out every record its predicate lets through."""

    uses_key = uses_value = False

    def one(self, record: Record) -> None:
        """Nothing is left."""
        return


class HasHeaderKey(Predicate):
    """Holds for records with a header of that name."""

    uses_key = uses_value = False

    def __init__(self, options: HasHeaderKeyOptions) -> None:
        self._name = options.name

    def test(self, record: Record) -> bool:
        """Look for the header."""
        return any(name == self._name for name, _ in record.headers)


class RecordIsTombstone(Predicate):
    """Holds for records without a value."""

    uses_key = uses_value = False

    def test(self, record: Record) -> bool:
        """Look whether there is a value; none needs to be read for that."""
        return record.value is None
