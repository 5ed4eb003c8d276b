"""ExtractField, HoistField and ValueToKey: the whole and its fields"""

from collections.abc import Sequence

from tidemill.connect.api import InvalidConfig, Json, Record, Schema, SchemaField, SchemaType
from tidemill.connect.transforms.options import ExtractFieldOptions, HoistFieldOptions, ValueToKeyOptions
from tidemill.connect.transforms.role import (
    KEY,
    VALUE,
    PartTransform,
    Role,
    SchemaMemory,
    as_map,
    as_struct,
    member,
)


class ExtractField(PartTransform):
    """Puts a field in the place of the whole."""

    def __init__(self, role: Role, options: ExtractFieldOptions) -> None:
        super().__init__(role)
        self._path = (options.field,) if options.syntax == "V1" else field_path(options.field)
        self._replace_null = options.replace_null

    def one(self, record: Record) -> Record:
        """Take the field; of nothing there is nothing to take."""
        value, schema = self.role.of(record)
        if schema is None:
            for name in self._path:
                if value is None:
                    break
                value = as_map(value, "field extraction").get(name)
            return self.role.put(record, value, None)
        for name in self._path:
            value, schema = self._step(value, schema, name)
        return self.role.put(record, value, schema)

    def _step(self, value: Json, schema: Schema, name: str) -> tuple[Json, Schema]:
        if schema.type is not SchemaType.STRUCT:
            as_struct(value, schema, "field extraction")
        field = next((each for each in schema.fields if each.name == name), None)
        if field is None:
            raise ValueError(f"Unknown field: {'.'.join(self._path)}")
        if value is None:
            return None, field.schema
        given = as_struct(value, schema, "field extraction")
        return member(given, field, replace_null=self._replace_null), field.schema


def field_path(text: str) -> tuple[str, ...]:
    """The names of a path; a name with points stands between backticks.

    >>> field_path("a.`b.c`.d")
    ('a', 'b.c', 'd')
    """
    names, at = [], 0
    while at <= len(text):
        if text.startswith("`", at):
            end = text.find("`", at + 1)
            while end >= 0 and text[end + 1 : end + 2] not in ("", "."):
                end = text.find("`", end + 1)
            if end < 0:
                raise InvalidConfig("field", f"the path {text!r} lacks a closing backtick")
            names.append(text[at + 1 : end].replace("\\`", "`"))
            at = end + 2
        else:
            end = text.find(".", at)
            names.append(text[at:] if end < 0 else text[at:end])
            at = len(text) + 1 if end < 0 else end + 1
    return tuple(names)


class HoistField(PartTransform):
    """Puts the whole into a field."""

    def __init__(self, role: Role, options: HoistFieldOptions) -> None:
        super().__init__(role)
        self._field = options.field
        self._schemas = SchemaMemory(self._hoisted)

    def one(self, record: Record) -> Record:
        """Wrap what is there, null as well."""
        value, schema = self.role.of(record)
        return self.role.put(record, {self._field: value}, None if schema is None else self._schemas(schema))

    def _hoisted(self, schema: Schema) -> Schema:
        return Schema(type=SchemaType.STRUCT, fields=(SchemaField(name=self._field, schema=schema),))


class ValueToKey(PartTransform):
    """Makes a key of fields of the value."""

    def __init__(self, options: ValueToKeyOptions) -> None:
        super().__init__(VALUE)
        self._fields = tuple(options.fields)
        self._replace_null = options.replace_null
        self._schemas = SchemaMemory(self._key_schema)

    def one(self, record: Record) -> Record:
        """Take the fields; the key there was is gone."""
        value, schema = record.value, record.value_schema
        if schema is None:
            given = as_map(value, "copying fields from value to key")
            return KEY.put(record, {name: given.get(name) for name in self._fields}, None)
        given = as_struct(value, schema, "copying fields from value to key")
        made = self._schemas(schema)
        key = {each.name: member(given, each, replace_null=self._replace_null) for each in made.fields}
        return KEY.put(record, key, made)

    def _key_schema(self, schema: Schema) -> Schema:
        return Schema(type=SchemaType.STRUCT, fields=tuple(pick(schema, self._fields)))


def pick(schema: Schema, names: Sequence[str]) -> list[SchemaField]:
    """Fields of a struct by their names, in this order."""
    known = {each.name: each for each in schema.fields}
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise ValueError(f"Field does not exist: {missing}")
    return [known[name] for name in names]
