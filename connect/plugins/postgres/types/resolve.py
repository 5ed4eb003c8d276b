"""From a column's type to its conversion

One table from type names to conversions; domains are followed to their base type, arrays to their elements. Types the
table does not know are carried as text.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidemill.connect.api import SchemaType
from tidemill.connect.plugins.postgres.types import composite, number, temporal, text
from tidemill.connect.plugins.postgres.types.conversion import NULL, Conversion, Modes

DOMAIN_DEPTH_MAX: Final = 32
"""Domains over domains we follow; the catalog cannot hold a cycle, a damaged one must not hang us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PgType:
    """A row of pg_type, as far as it matters here."""

    oid: int
    name: str
    kind: str = "b"  # typtype: b base, d domain, e enum, c composite, r range, m multirange
    element_oid: int = 0  # of an array
    base_oid: int = 0  # of a domain
    base_modifier: int = -1
    dimensions: int = 0  # of a domain over an array
    labels: tuple[str, ...] = ()  # of an enum, in its order
    delimiter: str = ","  # typdelim: between the elements of an array of it


Maker = Callable[[int, Modes], Conversion]

_BY_NAME: Final[Mapping[str, Maker]] = {
    "bool": lambda modifier, modes: number.boolean(),
    "int2": lambda modifier, modes: number.whole(SchemaType.INT16),
    "int4": lambda modifier, modes: number.whole(SchemaType.INT32),
    "int8": lambda modifier, modes: number.whole(SchemaType.INT64),
    "oid": lambda modifier, modes: number.whole(SchemaType.INT64),
    "float4": lambda modifier, modes: number.floating(SchemaType.FLOAT32),
    "float8": lambda modifier, modes: number.floating(SchemaType.FLOAT64),
    "numeric": number.numeric,
    "money": lambda modifier, modes: number.money(modes),
    "bit": lambda modifier, modes: number.bits(modifier, varying=False),
    "varbit": lambda modifier, modes: number.bits(modifier, varying=True),
    "bytea": lambda modifier, modes: text.binary(modes),
    "json": lambda modifier, modes: text.document(modes),
    "jsonb": lambda modifier, modes: text.document(modes),
    "xml": lambda modifier, modes: text.text(modes, "io.debezium.data.Xml"),
    "uuid": lambda modifier, modes: text.harmless(modes, "io.debezium.data.Uuid"),
    "inet": lambda modifier, modes: text.harmless(modes),
    "cidr": lambda modifier, modes: text.harmless(modes),
    "macaddr": lambda modifier, modes: text.harmless(modes),
    "macaddr8": lambda modifier, modes: text.harmless(modes),
    "tsvector": lambda modifier, modes: text.text(modes, "io.debezium.data.Tsvector"),
    "ltree": lambda modifier, modes: text.text(modes, "io.debezium.data.Ltree"),
    "hstore": lambda modifier, modes: text.hstore(modes),
    "date": lambda modifier, modes: temporal.date(modes),
    "time": temporal.time,
    "timetz": lambda modifier, modes: temporal.zoned_time(),
    "timestamp": temporal.timestamp,
    "timestamptz": lambda modifier, modes: temporal.zoned_timestamp(modifier),
    "interval": lambda modifier, modes: temporal.interval(modes),
    "point": lambda modifier, modes: composite.point(),
    "vector": lambda modifier, modes: composite.vector(SchemaType.FLOAT64, "io.debezium.data.DoubleVector"),
    "sparsevec": lambda modifier, modes: composite.sparse_vector(),
    "halfvec": lambda modifier, modes: composite.vector(SchemaType.FLOAT32, "io.debezium.data.FloatVector"),
}

_BUILT_IN: Final = (
    (16, "bool", 1000), (17, "bytea", 1001), (18, "char", 1002), (19, "name", 1003), (20, "int8", 1016),
    (21, "int2", 1005), (23, "int4", 1007), (25, "text", 1009), (26, "oid", 1028), (114, "json", 199),
    (142, "xml", 143), (600, "point", 1017), (603, "box", 1020), (650, "cidr", 651),
    (700, "float4", 1021), (701, "float8", 1022),
    (774, "macaddr8", 775), (790, "money", 791), (829, "macaddr", 1040), (869, "inet", 1041),
    (1042, "bpchar", 1014), (1043, "varchar", 1015), (1082, "date", 1182), (1083, "time", 1183),
    (1114, "timestamp", 1115), (1184, "timestamptz", 1185), (1186, "interval", 1187), (1266, "timetz", 1270),
    (1560, "bit", 1561), (1562, "varbit", 1563), (1700, "numeric", 1231), (2950, "uuid", 2951),
    (3614, "tsvector", 3643), (3802, "jsonb", 3807), (3904, "int4range", 3905), (3906, "numrange", 3907),
    (3908, "tsrange", 3909), (3910, "tstzrange", 3911), (3912, "daterange", 3913), (3926, "int8range", 3927),
)  # fmt: skip
"""Number, name and number of the array type of the built-in types; the same in every database."""

WITHOUT_DEFAULTS: Final = frozenset(
    {
        "bytea", "citext", "cidr", "daterange", "hstore", "inet", "int4range", "int8range", "ltree", "macaddr",
        "macaddr8", "numrange", "oid", "timetz", "tsrange", "tstzrange", "tsvector",
    }
)  # fmt: skip
"""Types whose defaults Debezium's schemas do not carry, beside domains, arrays, points, money and free numerics."""

BUILT_IN_TYPES: Final[Mapping[int, PgType]] = {
    **{oid: PgType(oid=oid, name=name, delimiter=";" if name == "box" else ",") for oid, name, _ in _BUILT_IN},
    **{array: PgType(oid=array, name=f"_{name}", element_oid=oid) for oid, name, array in _BUILT_IN},
}


class TypeCatalog:
    """The types of one database."""

    def __init__(self, types: Iterable[PgType] = ()) -> None:
        self._types = {**BUILT_IN_TYPES, **{each.oid: each for each in types}}

    def __contains__(self, oid: int) -> bool:
        return oid in self._types

    def learn(self, types: Iterable[PgType]) -> None:
        """Add types, or replace what was known of them."""
        self._types.update((each.oid, each) for each in types)

    def base(self, oid: int) -> int:
        """Return the type below a domain, which is what the answer to a query names; any other type is its own."""
        for _ in range(DOMAIN_DEPTH_MAX):
            found = self._types.get(oid)
            if found is None or found.kind != "d":
                break
            oid = found.base_oid
        return oid

    def conversion(self, oid: int, modifier: int, modes: Modes, dimensions: int = 0) -> Conversion:
        """Return the conversion of a column of type `oid` with `modifier`, declared with so many dimensions."""
        plain = True
        for _ in range(DOMAIN_DEPTH_MAX):
            found = self._types.get(oid)
            if found is None or found.kind != "d":
                break
            oid, dimensions, plain = found.base_oid, found.dimensions, False
            modifier = found.base_modifier if modifier < 0 else modifier
        made = text.text(modes) if found is None else self._made(found, modifier, modes, dimensions, plain=plain)
        carried = found is not None and made.defaulted and plain and found.name not in WITHOUT_DEFAULTS
        return made if carried else replace(made, defaulted=False)

    def _made(self, found: PgType, modifier: int, modes: Modes, dimensions: int, *, plain: bool) -> Conversion:
        element = self._types.get(found.element_oid)
        if found.element_oid and found.name.startswith("_"):
            items = self.conversion(found.element_oid, modifier, modes)
            if element is None:
                return composite.array(items, max(dimensions, 1))
            unavailable = composite.stand_in(element.name, modes) if plain else NULL
            return composite.array(items, max(dimensions, 1), element.delimiter.encode(), unavailable)
        if found.kind == "e":
            return text.enumeration(modes, found.labels)
        maker = _BY_NAME.get(found.name)
        return text.text(modes) if maker is None or found.kind != "b" else maker(modifier, modes)
