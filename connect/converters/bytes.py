"""Bytes untouched: Kafka Connect's ByteArrayConverter"""

from collections.abc import Mapping

from tidemill.connect.api import Json, Schema, SchemaType

OPTIONAL_BYTES = Schema(type=SchemaType.BYTES, optional=True)


class BytesConverter:
    """Hands bytes through and refuses everything else."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> "BytesConverter":
        """Read the converter's options: it has none."""
        return cls()

    def encode(self, value: Json, schema: Schema | None) -> bytes | None:
        """Write bytes."""
        if schema is not None and schema.type is not SchemaType.BYTES:
            raise ValueError(f"ByteArrayConverter takes bytes, not a schema of type {schema.type}")
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise ValueError(f"ByteArrayConverter takes bytes, not {type(value).__name__}")

    def decode(self, data: bytes | None) -> tuple[Json, Schema | None]:
        """Read bytes."""
        return data, OPTIONAL_BYTES
