"""DropHeaders, HeaderFrom and InsertHeader: transforms of headers

Headers are bytes here. What is put into one is written as Connect's SimpleHeaderConverter writes it: as its text.
"""

from dataclasses import replace

from tidemill.connect.api import InvalidConfig, Json, Record, Schema
from tidemill.connect.transforms.fields import pick
from tidemill.connect.transforms.literals import literal_text
from tidemill.connect.transforms.options import DropHeadersOptions, HeaderFromOptions, InsertHeaderOptions
from tidemill.connect.transforms.role import (
    PartTransform,
    RecordTransform,
    Role,
    SchemaMemory,
    as_map,
    as_struct,
    basics,
    member,
)
from tidemill.connect.transforms.text import value_text


class DropHeaders(RecordTransform):
    """Removes headers by their names."""

    uses_key = uses_value = False

    def __init__(self, options: DropHeadersOptions) -> None:
        self._names = frozenset(options.headers)

    def one(self, record: Record) -> Record:
        """Keep the others."""
        if not any(name in self._names for name, _ in record.headers):
            return record
        return replace(record, headers=tuple(each for each in record.headers if each[0] not in self._names))


class InsertHeader(RecordTransform):
    """Adds a header with a fixed value."""

    uses_key = uses_value = False

    def __init__(self, options: InsertHeaderOptions) -> None:
        text = literal_text(options.literal)
        self._header = (options.header, None if text is None else text.encode())

    def one(self, record: Record) -> Record:
        """Add it behind the others."""
        return replace(record, headers=(*record.headers, self._header))


class HeaderFrom(PartTransform):
    """Copies or moves fields into headers."""

    def __init__(self, role: Role, options: HeaderFromOptions) -> None:
        super().__init__(role)
        if len(options.fields) != len(options.headers):
            raise InvalidConfig("headers", "'fields' config must have the same number of elements as 'headers' config.")
        self._fields, self._headers = tuple(options.fields), tuple(options.headers)
        self._moves = options.operation == "move"
        self._purpose = f"header {options.operation}"
        self._replace_null = options.replace_null
        self._schemas = SchemaMemory(self._left)

    def one(self, record: Record) -> Record:
        """Add the headers behind the others."""
        value, schema = self.role.of(record)
        if schema is None:
            given = as_map(value, self._purpose)
            found = [_bytes(given.get(name), None) for name in self._fields]
            left: Json = {name: each for name, each in given.items() if name not in self._fields}
        else:
            given = as_struct(value, schema, self._purpose)
            fields = pick(schema, self._fields)
            found = [_bytes(member(given, each, replace_null=self._replace_null), each.schema) for each in fields]
            left = None
            if self._moves:
                made = self._schemas(schema)
                left = {each.name: member(given, each, replace_null=self._replace_null) for each in made.fields}
        record = replace(record, headers=(*record.headers, *zip(self._headers, found, strict=True)))
        if not self._moves:
            return record
        return self.role.put(record, left, None if schema is None else self._schemas(schema))

    def _left(self, schema: Schema) -> Schema:
        fields = tuple(each for each in schema.fields if each.name not in self._fields)
        return replace(basics(schema), fields=fields)


def _bytes(value: Json, schema: Schema | None) -> bytes | None:
    return None if value is None else value_text(value, schema).encode()
