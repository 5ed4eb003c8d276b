"""Building blocks for writing straight-line codec source

Reader and writer generators share the struct codes of the fixed-size types, the smallest encoded size of a layout (with
it a reader refuses an array count before it allocates), and the text buffer with its register of `struct.Struct`
methods.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from .schema import FieldLayout, StructLayout

STRUCT_CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
}
SIZES = {"?": 1, "x": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8}


def fixed_bytes(codes: str) -> int:
    """Size of a run of struct codes."""
    return sum(SIZES[code] for code in codes)


def struct_name(codes: str) -> str:
    """Struct codes as part of a name: `?` is spelt `t`."""
    return codes.replace("?", "t")


def default_name(layout: StructLayout, field: str) -> str:
    """Name of the default of a field."""
    return f"_d_{layout.name}_{field}"


def has_fixed_size(layout: StructLayout) -> bool:
    """Whether it is a row of numbers, and of tags if there are any."""
    return layout.is_row and all(field.type in STRUCT_CODES and not field.array for field in layout.fields)


def length_code(type_name: str, array: bool, flexible: bool) -> str:
    """Struct code of a length prefix; a compact length is a varint whose first byte is read as `B`."""
    if flexible:
        return "B"
    return "h" if type_name == "string" and not array else "i"


def element_bytes_min(field: FieldLayout, flexible: bool) -> int:
    """Smallest size of one element of `field`."""
    if field.struct is not None:
        return struct_bytes_min(field.struct)
    if field.type == "uuid":
        return 16
    code = STRUCT_CODES.get(field.type) or length_code(field.type, False, flexible)
    return SIZES[code]


def struct_bytes_min(layout: StructLayout) -> int:
    """Smallest size of a struct."""
    size = 1 if layout.flexible else 0
    for field in layout.fields:
        if field.array:
            size += SIZES[length_code(field.type, True, layout.flexible)]
        elif field.struct is not None and field.nullable:
            size += 1
        else:
            size += element_bytes_min(field, layout.flexible)
    return max(size, 1)


class SourceText:
    """Lines of Python with the current indentation, plus fresh names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._indent = 1
        self._names = 0

    def line(self, text: str) -> None:
        """Append one line."""
        self.lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Indent what is written inside below `header`."""
        self.line(header)
        self._indent += 1
        yield
        self._indent -= 1

    @contextmanager
    def lines_of(self, header: str, footer: str) -> Iterator[None]:
        """What `block` does, with a line behind it."""
        with self.block(header):
            yield
        self.line(footer)

    def fresh(self, stem: str) -> str:
        """Return a variable name that is used nowhere else in this function."""
        self._names += 1
        return f"{stem}_{self._names}"
