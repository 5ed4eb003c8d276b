"""A schema as the JSON envelope spells it

`{"type": …, "optional": …, "name": …, …}` with the members in the order JsonConverter writes them: equal schemas then
have equal bytes, which readers use as a cache key. Reading is lenient where JsonConverter is (a missing `optional`
means false) and refuses what has no type.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidemill.connect.api import Json, Schema, SchemaField, SchemaType

DefaultCodec = Callable[[Schema, Json], Json]
"""How a default value turns into JSON, or back: it depends on the schema's own type."""


def schema_to_json(schema: Schema | None, encode_default: DefaultCodec) -> dict[str, Any] | None:
    """Write a schema as the envelope's `schema` member."""
    if schema is None:
        return None
    out: dict[str, Any] = {"type": schema.type.value}
    match schema.type:
        case SchemaType.ARRAY:
            out["items"] = schema_to_json(schema.items, encode_default)
        case SchemaType.MAP:
            out["keys"] = schema_to_json(schema.keys, encode_default)
            out["values"] = schema_to_json(schema.items, encode_default)
        case SchemaType.STRUCT:
            out["fields"] = [
                {**(schema_to_json(each.schema, encode_default) or {}), "field": each.name} for each in schema.fields
            ]
        case _:
            pass
    out["optional"] = schema.optional
    if schema.name is not None:
        out["name"] = schema.name
    if schema.version is not None:
        out["version"] = schema.version
    if schema.doc is not None:
        out["doc"] = schema.doc
    if schema.parameters:
        out["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        out["default"] = encode_default(schema, schema.default)
    return out


def schema_from_json(given: Json, decode_default: DefaultCodec) -> Schema | None:
    """Read the envelope's `schema` member; a ValueError says what is wrong with it."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError(f"a schema is a JSON object, not {type(given).__name__}")
    try:
        kind = SchemaType(str(given.get("type")))
    except ValueError:
        raise ValueError(f"unknown schema type {given.get('type')!r}") from None
    name, version, doc, parameters = (given.get(each) for each in ("name", "version", "doc", "parameters"))
    element = {SchemaType.ARRAY: "items", SchemaType.MAP: "values"}.get(kind)
    schema = Schema(
        type=kind,
        optional=given.get("optional") is True,
        name=name,
        version=version,
        doc=doc,
        parameters=parameters or {},
        items=_required(given, element, kind, decode_default) if element else None,
        keys=_required(given, "keys", kind, decode_default) if kind is SchemaType.MAP else None,
        fields=_fields(given, decode_default) if kind is SchemaType.STRUCT else (),
    )
    if given.get("default") is None:
        return schema
    return replace(schema, default=decode_default(schema, given["default"]))


def _required(given: dict[str, Any], member: str, kind: SchemaType, decode_default: DefaultCodec) -> Schema:
    schema = schema_from_json(given.get(member), decode_default)
    if schema is None:
        raise ValueError(f"a schema of type {kind} needs the member {member!r}")
    return schema


def _fields(given: dict[str, Any], decode_default: DefaultCodec) -> tuple[SchemaField, ...]:
    members = given.get("fields")
    if not isinstance(members, list):
        raise ValueError("a schema of type struct needs the member 'fields', an array")
    found = []
    for member in members:
        schema = schema_from_json(member, decode_default)
        name = member.get("field") if isinstance(member, dict) else None
        if schema is None or not isinstance(name, str):
            raise ValueError("every member of 'fields' is a schema with a name under 'field'")
        found.append(SchemaField(name=name, schema=schema))
    return tuple(found)
