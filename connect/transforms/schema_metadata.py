"""SetSchemaMetadata: another name or version for a schema"""

from dataclasses import replace

from tidemill.connect.api import InvalidConfig, Record, Schema, SchemaType
from tidemill.connect.transforms.options import SetSchemaMetadataOptions
from tidemill.connect.transforms.role import PartTransform, Role, SchemaMemory


class SetSchemaMetadata(PartTransform):
    """Renames the schemas of structs; the value stays what it is."""

    def __init__(self, role: Role, options: SetSchemaMetadataOptions) -> None:
        super().__init__(role)
        if options.name is None and options.version is None:
            raise InvalidConfig("schema.name", "Neither schema name nor version configured")
        self._name, self._version = options.name, options.version
        self._schemas = SchemaMemory(self._renamed)

    def one(self, record: Record) -> Record:
        """Rename the schema, which has to be there."""
        value, schema = self.role.of(record)
        if schema is None:
            if value is None:
                return record
            raise ValueError("Schema required for [updating schema metadata]")
        return self.role.put(record, value, self._schemas(schema))

    def _renamed(self, schema: Schema) -> Schema:
        if schema.type is not SchemaType.STRUCT:
            raise ValueError("Cannot list fields on non-struct type")
        return replace(
            schema,
            name=schema.name if self._name is None else self._name,
            version=schema.version if self._version is None else self._version,
        )
