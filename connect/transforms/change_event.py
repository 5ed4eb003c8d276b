"""A change event of Debezium's, as transforms find it

Its value is an envelope: the row as it was (`before`) and as it is (`after`), where it comes from (`source`,
`transaction`) and what happened (`op`). With a schema it is known by the schema's name, as in Debezium
(`io.debezium.data.Envelope`). Without one, which is what `schemas.enable=false` leaves of it, it is known by its
members; Debezium never meets that in a source, where its records still have their schemas.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeGuard

from tidemill.connect.api import InvalidConfig, Json, Record, Schema, SchemaField, SchemaType

ENVELOPE_SUFFIX: Final = ".Envelope"
DELETE: Final = "d"
OPERATION: Final = "op"

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_TRANSACTION: Final = ("id", "total_order", "data_collection_order")
_TOP: Final = (OPERATION, "ts_ms", "ts_us", "ts_ns")


def is_change(record: Record) -> bool:
    """Whether the value of a record is an envelope."""
    schema, value = record.value_schema, record.value
    if schema is not None:
        return schema.name is not None and schema.name.endswith(ENVELOPE_SUFFIX)
    if not isinstance(value, Mapping):
        return False
    return type(value.get(OPERATION)) is str and "source" in value and ("after" in value or "before" in value)


def has_members(value: Json) -> TypeGuard[Mapping[str, Json]]:
    """Whether it is a map; of what JSON is read to, told without asking the map's abstract class, a long question."""
    kind = type(value)
    return kind is dict or (kind not in _PLAIN and isinstance(value, Mapping))


class Reference(NamedTuple):
    """Something an envelope knows besides its rows, and the name it is to have elsewhere."""

    struct: str | None  # where it stands; None for the envelope itself
    field: str
    name: str

    def described(self, envelope: Schema) -> Schema | None:
        """The schema it has elsewhere; None if these envelopes have no such field."""
        fields = _members(envelope)
        if self.struct is not None:
            parent = fields.get(self.struct)
            if parent is None:
                raise self._homeless()
            fields = {**fields, **_members(parent)}
        found = fields.get(self.field)
        if found is None:
            return None
        return Schema(  # of a struct, the fields are not described: only its text can be had, in a header
            type=found.type,
            optional=True,
            name=found.name,
            version=found.version,
            doc=found.doc,
            parameters=found.parameters,
            items=found.items,
            keys=found.keys,
        )

    def known(self, envelope: Mapping[str, Json], schema: Schema | None) -> bool:
        """Whether there is such a field, perhaps null."""
        if schema is not None:
            return self.described(schema) is not None
        if self.struct is None or self.field in envelope:
            return self.field in envelope
        if self.struct not in envelope:
            raise self._homeless()
        parent = envelope[self.struct]
        if parent is None:  # a transaction is null in snapshots, and where nobody asked for it
            return self.struct == "transaction" and self.field in _TRANSACTION
        return has_members(parent) and self.field in parent

    def _homeless(self) -> ValueError:
        return ValueError(f"these changes have no {self.struct!r} that {self.field!r} could be taken of")

    def value(self, envelope: Mapping[str, Json]) -> Json:
        """What stands there."""
        if self.struct is None:
            return envelope.get(self.field)
        parent = envelope.get(self.struct)
        if not has_members(parent):
            return None
        return parent[self.field] if self.field in parent else envelope.get(self.field)


def _members(schema: Schema) -> dict[str, Schema]:
    return {each.name: each.schema for each in schema.fields}


def references(names: str, prefix: str, option: str) -> tuple[Reference, ...]:
    """Read a list such as `op, source.ts_ms:when`."""
    if not names:
        return ()
    found = names.split(",")
    while found and not found[-1]:
        found.pop()
    read = tuple(_reference(each.strip(), prefix, option) for each in found)
    called = [each.name for each in read]
    twice = next((name for name in called if called.count(name) > 1), None)
    if twice is not None and option == "add.fields":
        raise InvalidConfig(option, f"two fields would be called {twice};", "Name one of them anew, as in FIELD:NAME.")
    return read


def _reference(text: str, prefix: str, option: str) -> Reference:
    path, *given = _split(text, ":")
    if len(given) > 1:
        raise InvalidConfig(option, f"Unexpected field name: {text}", "Write FIELD, STRUCT.FIELD or FIELD:NEW_NAME.")
    parts = _split(path, ".")
    if not parts[0] and text and not given:
        raise InvalidConfig(option, f"{text!r} names no field:", "Write FIELD, STRUCT.FIELD or FIELD:NEW_NAME.")
    if len(parts) == 1:
        struct, field = _place(parts[0]), parts[0]
        name = field
    else:
        struct, field = parts[0], parts[1]
        name = f"{struct}_{field}"
    return Reference(struct, field, prefix + (given[0] if given else name))


def _split(text: str, mark: str) -> list[str]:
    """Split without the empty parts at the end, but for the first."""
    parts = text.split(mark)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _place(field: str) -> str | None:
    if field in _TRANSACTION:
        return "transaction"
    return None if field in _TOP else "source"


def field_of(schema: Schema, name: str) -> SchemaField:
    """A field of a struct by its name."""
    found = next((each for each in schema.fields if each.name == name), None)
    if found is None:
        raise ValueError(f"{name} is not a valid field name")
    return found


def text_member(row: Mapping[str, Json], schema: Schema | None, name: str) -> str | None:
    """A string of a row."""
    if schema is not None:
        field = field_of(schema, name).schema
        if field.type is not SchemaType.STRING:
            raise ValueError(f"Field '{name}' is not of type STRING")
        found = row.get(name)
        found = field.default if found is None else found
    elif name not in row:
        raise ValueError(f"{name} is not a valid field name")
    else:
        found = row[name]
    if found is not None and not isinstance(found, str):
        raise ValueError(f"Field '{name}' is not of type STRING")
    return found
