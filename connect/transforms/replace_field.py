"""ReplaceField: fields removed, kept or renamed"""

from dataclasses import replace

from tidemill.connect.api import InvalidConfig, Record, Schema, SchemaField
from tidemill.connect.transforms.options import ReplaceFieldOptions
from tidemill.connect.transforms.role import PartTransform, Role, SchemaMemory, as_map, as_struct, basics, member


class ReplaceField(PartTransform):
    """Decides about every field by its name."""

    def __init__(self, role: Role, options: ReplaceFieldOptions) -> None:
        super().__init__(role)
        self._exclude = frozenset(options.exclude)
        self._include = frozenset(options.include)
        self._renames = dict(_pair(each) for each in options.renames)
        self._replace_null = options.replace_null
        self._schemas = SchemaMemory(self._replaced)

    def one(self, record: Record) -> Record:
        """Build the structure anew; null stays null."""
        value, schema = self.role.of(record)
        if value is None:
            return record
        name = self._renames.get
        if schema is None:
            given = as_map(value, "field replacement")
            return self.role.put(
                record, {name(old, old): each for old, each in given.items() if self._stays(old)}, None
            )
        given = as_struct(value, schema, "field replacement")
        made = {
            name(each.name, each.name): member(given, each, replace_null=self._replace_null)
            for each in schema.fields
            if self._stays(each.name)
        }
        return self.role.put(record, made, self._schemas(schema))

    def _stays(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def _replaced(self, schema: Schema) -> Schema:
        fields = [
            SchemaField(name=self._renames.get(each.name, each.name), schema=each.schema)
            for each in schema.fields
            if self._stays(each.name)
        ]
        return replace(basics(schema), fields=tuple(fields))


def _pair(text: str) -> tuple[str, str]:
    old, colon, new = text.partition(":")
    if not colon or not old or not new or ":" in new:
        raise InvalidConfig("renames", f"{text!r} is not OLD:NEW")
    return old, new
