"""The message schemas as frozen values

Each file in `schemas/` describes one API: its key, the window of versions we speak, the first flexible version, the
fields of request and response and the structs they use. A field is one line of text:

    name type [versions] [null | null=versions] [tag=N] [= default]

`versions` is `3`, `3+`, `-7` (up to 7) or `3-7` and is left out when the field exists in the whole window. `null` marks
a nullable field, `null=2+` one that is nullable only from version 2. `tag=N` puts the field into the tag section. Types
are `bool int8 int16 int32 int64 uint16 uint32 float64 uuid string bytes records`, the name of a struct, or either with
`[]` in front. Without a default a field is zero, empty, or a struct of defaults; `= empty` spells that out.

`rows` names the structs of which a message has many. Each of them is a plain tuple, a NamedTuple, instead of a message
of its own, and their codec works by the row: what is of a fixed size is read all at once, and a row in which everything
of variable length is empty is written at once.

`ApiSchema.layout` resolves a message at one version into the exact sequence of things on the wire; versions with equal
layouts (`ApiSchema.versions_like`) share one codec.
"""

import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA_DIRECTORY = Path(__file__).parent / "schemas"
PRIMITIVES = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint16", "uint32", "float64", "uuid", "string", "bytes", "records")
)
_FIELD = re.compile(
    r"(?P<name>[a-z][a-z0-9_]*) (?P<array>\[\])?(?P<type>\w+)"
    r"(?: (?P<versions>\d+\+|\d*-\d+|\d+))?(?: (?P<null>null)(?:=(?P<nullable>[0-9+-]+))?)?"
    r"(?: tag=(?P<tag>\d+))?(?: = (?P<default>\S+))?"
)
_API_KEYS = {"api", "key", "versions", "flexible", "request", "response", "structs"}
_MORE_KEYS = {"rows"}


class SchemaError(ValueError):
    """A schema file that does not follow the notation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """Versions `first` to `last`, both included; empty when `first > last`."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSIONS = VersionRange(first=1, last=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a struct, over all versions."""

    name: str
    type: str
    array: bool
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    default: Any

    @property
    def is_struct(self) -> bool:
        """Whether the element type is a struct of the schema."""
        return self.type not in PRIMITIVES


@dataclass(frozen=True, slots=True, kw_only=True)
class StructSchema:
    """A named sequence of fields."""

    name: str
    fields: tuple[Field, ...]
    is_row: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldLayout:
    """One field as it is on the wire at one version."""

    name: str
    type: str
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    struct: "StructLayout | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class StructLayout:
    """A struct at one version: the fields in wire order, then the tagged ones, then those that are absent."""

    name: str
    flexible: bool
    fields: tuple[FieldLayout, ...]
    tagged: tuple[FieldLayout, ...]
    absent: tuple[str, ...]
    names: tuple[str, ...]  # all of them, in the order of the class
    is_row: bool

    def structs(self) -> "Iterator[StructLayout]":
        """This one and all below it."""
        yield self
        for field in (*self.fields, *self.tagged):
            if field.struct is not None:
                yield from field.struct.structs()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSchema:
    """Request and response of one API."""

    name: str
    key: int
    versions: VersionRange
    flexible_from: int
    request: StructSchema
    response: StructSchema
    structs: Mapping[str, StructSchema]

    @property
    def module(self) -> str:
        """Name of the generated module: the API's name in snake_case."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).lower()

    def layout(self, struct: StructSchema, version: int) -> StructLayout:
        """Resolve `struct` at `version`."""
        present = [field for field in struct.fields if version in field.versions]
        layouts = [self._field_layout(field, version) for field in present]
        return StructLayout(
            name=struct.name,
            flexible=version >= self.flexible_from,
            fields=tuple(field for field in layouts if field.tag is None),
            tagged=tuple(sorted((f for f in layouts if f.tag is not None), key=lambda f: f.tag or 0)),
            absent=tuple(field.name for field in struct.fields if version not in field.versions),
            names=tuple(field.name for field in struct.fields),
            is_row=struct.is_row,
        )

    def _field_layout(self, field: Field, version: int) -> FieldLayout:
        return FieldLayout(
            name=field.name,
            type=field.type,
            array=field.array,
            nullable=version in field.nullable,
            tag=field.tag,
            default=field.default,
            struct=self.layout(self.structs[field.type], version) if field.is_struct else None,
        )

    def versions_like(self, root: StructSchema, version: int) -> VersionRange:
        """The versions around `version` in which `root` has the same layout."""
        edges = {self.versions.first, self.flexible_from, self.versions.last + 1}
        for struct in self.structs_of(root):
            for field in struct.fields:
                for versions in (field.versions, field.nullable):
                    edges |= {versions.first, versions.last + 1} if versions.first <= versions.last else set()
        return VersionRange(
            first=max(edge for edge in edges if edge <= version), last=min(edge for edge in edges if edge > version) - 1
        )

    def structs_of(self, root: StructSchema) -> list[StructSchema]:
        """Return the structs below `root` and then `root`, each after those it uses."""
        found: dict[str, StructSchema] = {}

        def visit(struct: StructSchema) -> None:
            for field in struct.fields:
                if field.is_struct and field.type not in found:
                    visit(self.structs[field.type])
            found[struct.name] = struct

        visit(root)
        return list(found.values())


def parse_versions(text: str, window: VersionRange) -> VersionRange:
    """Read `3`, `3+`, `-7` or `3-7` inside `window`."""
    if text.endswith("+"):
        first, last = int(text[:-1]), window.last
    elif "-" in text:
        low, high = text.split("-")
        first, last = int(low) if low else window.first, int(high)
    else:
        first = last = int(text)
    if not window.first <= first <= last <= window.last:
        raise SchemaError(f"versions {text!r} are not inside {window}")
    return VersionRange(first=first, last=last)


def parse_field(text: str, window: VersionRange) -> Field:
    """Read one field line."""
    match = _FIELD.fullmatch(text)
    if match is None:
        raise SchemaError(f"cannot read field {text!r}")
    versions = parse_versions(match["versions"], window) if match["versions"] else window
    nullable = NO_VERSIONS
    if match["null"]:
        nullable = parse_versions(match["nullable"], window) if match["nullable"] else versions
    array = match["array"] is not None
    if match["type"] not in PRIMITIVES and not match["type"][0].isupper():
        raise SchemaError(f"unknown type in field {text!r}")
    if match["tag"] and match["null"] and match["type"] not in PRIMITIVES and not array:
        raise SchemaError(f"a tagged struct cannot be nullable: {text!r}")
    return Field(
        name=match["name"],
        type=match["type"],
        array=array,
        versions=versions,
        nullable=nullable,
        tag=int(match["tag"]) if match["tag"] else None,
        default=_parse_default(match["type"], array, match["default"]),
    )


def _parse_default(type_name: str, array: bool, text: str | None) -> Any:
    """Return the default value; a struct's default is None here unless spelt, see `generate`."""
    if text == "null":
        return None
    if array:
        return ()
    if type_name == "bool":
        return text == "true"
    if type_name.startswith(("int", "uint")):
        return int(text or "0")
    if type_name == "float64":
        return float(text or "0")
    if type_name == "string":
        return text or ""
    if type_name in ("bytes", "records"):
        return b""
    if text is not None:
        raise SchemaError(f"a {type_name} has no default {text!r}")
    return ...  # zero UUID or a struct of defaults


def parse_api(document: dict[str, Any]) -> ApiSchema:
    """Check and read one schema file's content."""
    if set(document) - _MORE_KEYS != _API_KEYS:
        raise SchemaError(f"expected the keys {sorted(_API_KEYS)}, found {sorted(document)}")
    low, high = str(document["versions"]).split("-")
    window = VersionRange(first=int(low), last=int(high))
    name = document["api"]

    rows = set(document.get("rows", ()))
    if not rows <= set(document["structs"]):
        raise SchemaError(f"{name}: there are no structs {sorted(rows - set(document['structs']))} to be rows")

    def struct(struct_name: str, lines: list[str]) -> StructSchema:
        fields = tuple(parse_field(line, window) for line in lines)
        return StructSchema(name=struct_name, fields=fields, is_row=struct_name in rows)

    schema = ApiSchema(
        name=name,
        key=document["key"],
        versions=window,
        flexible_from=int(str(document["flexible"]).rstrip("+")),
        request=struct(f"{name}Request", document["request"]),
        response=struct(f"{name}Response", document["response"]),
        structs={struct_name: struct(struct_name, lines) for struct_name, lines in document["structs"].items()},
    )
    _check_references(schema)
    return schema


def _check_references(schema: ApiSchema) -> None:
    used = set()
    for struct in (schema.request, schema.response, *schema.structs.values()):
        tags = [field.tag for field in struct.fields if field.tag is not None]
        if sorted(tags) != list(range(len(tags))):
            raise SchemaError(f"{struct.name}: tags must count up from 0, found {tags}")
        for field in struct.fields:
            if field.tag is not None and field.versions.first < schema.flexible_from:
                raise SchemaError(f"{struct.name}.{field.name}: tagged before version {schema.flexible_from}")
            if field.is_struct:
                used.add(field.type)
                if field.type not in schema.structs:
                    raise SchemaError(f"{struct.name}.{field.name}: there is no struct {field.type}")
    unused = set(schema.structs) - used
    if unused:
        raise SchemaError(f"{schema.name}: unused structs {sorted(unused)}")


def load_schema(name: str, directory: Path | None = None) -> ApiSchema:
    """Read the schema file of the API `name`: ours, which may lie in an archive, or that in `directory`."""
    file = f"{name}.json"
    data = pkgutil.get_data(__package__, f"schemas/{file}") if directory is None else (directory / file).read_bytes()
    try:
        schema = parse_api(json.loads(data or b""))
    except (SchemaError, json.JSONDecodeError) as error:
        raise SchemaError(f"{file}: {error}") from error
    if schema.name != name:
        raise SchemaError(f"{file}: holds the schema of {schema.name}")
    return schema


def load_schemas(directory: Path = SCHEMA_DIRECTORY) -> list[ApiSchema]:
    """Read every schema file, in order of API key."""
    schemas = [load_schema(path.stem, directory) for path in directory.glob("*.json")]
    return sorted(schemas, key=lambda schema: schema.key)
