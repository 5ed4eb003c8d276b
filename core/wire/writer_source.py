"""Source text of one encoder

`writer_source` writes a function `(m, out, chunks) -> out` for one layout. Fixed-size fields collect into one `pack`
together with a one-byte length or an empty tag section that follows them. A `records` field is never copied: what has
been written so far moves to `chunks`, the field follows as it is, and a new buffer begins.

Fields that a version does not have are dropped; a null where the version knows none fails (TypeError, AttributeError,
struct.error), which `tidemill.core.wire.codec` turns into `EncodeError`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .primitives import uvarint
from .schema import FieldLayout, StructLayout
from .source_text import SIZES, STRUCT_CODES, SourceText, default_name, length_code, struct_name


def writer_source(function: str, layout: StructLayout, structs: set[str]) -> list[str]:
    """Return the lines of an encoder; adds the struct codes it needs to `structs`."""
    writer = _Writer(structs)
    writer.write_fields("m.", layout, "out")
    writer.flush("out")
    writer.text.line("return out")
    return [f"def {function}(m, out, chunks):", *writer.text.lines]


class _Writer:
    """The function being written; `run` holds fixed-size values that wait for one common pack."""

    def __init__(self, structs: set[str]) -> None:
        self.text = SourceText()
        self.structs = structs
        self.run: list[tuple[str, str]] = []

    def packed(self, extra: tuple[tuple[str, str], ...] = ()) -> str:
        """Return an expression for the bytes of the run followed by `extra`."""
        run = [*self.run, *extra]
        codes = "".join(code for _, code in run)
        if all(value.isdigit() for value, _ in run) and set(codes) <= {"B"}:
            return repr(bytes(int(value) for value, _ in run))
        self.structs.add(codes)
        return f"_p_{struct_name(codes)}({', '.join(value for value, _ in run)})"

    def flush(self, out: str) -> None:
        """Write the pending run."""
        if self.run:
            self.text.line(f"{out} += {self.packed()}")
            self.run = []

    def write_fields(self, place: str, layout: StructLayout, out: str) -> None:
        """Write all fields of a struct; their names begin with `place`."""
        for field in layout.fields:
            self.write_field(f"{place}{field.name}", field, layout.flexible, out)
        if layout.tagged:
            self.write_tags(place, layout, out)
        elif layout.flexible:
            self.run.append(("0", "B"))

    def write_field(self, source: str, field: FieldLayout, flexible: bool, out: str) -> None:
        """Write one field (without its tag)."""
        if field.array:
            self.write_array(source, field, flexible, out)
        elif field.struct is not None:
            self.write_struct_field(source, field, out)
        elif field.type in STRUCT_CODES:
            self.run.append((source, STRUCT_CODES[field.type]))
        elif field.type == "uuid":
            self.flush(out)
            self.text.line(f"{out} += {source}.bytes")
        else:
            self.write_bytes(source, field, flexible, out)

    def write_struct_field(self, source: str, field: FieldLayout, out: str) -> None:
        """Write a struct that is a field by itself."""
        assert field.struct is not None
        name = self.text.fresh("s")
        self.flush(out)
        self.text.line(f"{name} = {source}")
        if not field.nullable:
            self.write_fields(f"{name}.", field.struct, out)
            return
        with self.text.block(f"if {name} is None:"):
            self.text.line(f"{out} += b'\\xff'")
        with self.text.block("else:"):
            self.run.append(("1", "B"))
            self.write_fields(f"{name}.", field.struct, out)
            self.flush(out)

    def write_length(self, code: str, out: str) -> None:
        """Write the run and the length prefix in `n`."""
        if code != "B":
            self.text.line(f"{out} += {self.packed((('n', code),))}")
        else:
            with self.text.block("if n < 128:"):
                self.text.line(f"{out} += {self.packed((('n', 'B'),))}" if self.run else f"{out}.append(n)")
            with self.text.block("else:"):
                self.text.line(f"{out} += {self.packed() + ' + ' if self.run else ''}uvarint(n)")
        self.run = []

    def write_bytes(self, source: str, field: FieldLayout, flexible: bool, out: str) -> None:
        """Write a string, bytes or records."""
        code = length_code(field.type, False, flexible)
        value = self.text.fresh("v")
        null, extra = ("0", " + 1") if code == "B" else ("-1", "")
        content = f"{source}.encode()" if field.type == "string" else source
        if field.nullable:
            raw = self.text.fresh("v")
            self.text.line(f"{raw} = {source}")
            content = f"{raw}.encode()" if field.type == "string" else raw
            self.text.line(f'{value} = b"" if {raw} is None else {content}')
            self.text.line(f"n = {null} if {raw} is None else len({value}){extra}")
        else:
            self.text.line(f"{value} = {content}")
            self.text.line(f"n = len({value}){extra}")
        self.write_length(code, out)
        if field.type != "records":
            self.text.line(f"{out} += {value}")
            return
        with self.text.block(f"if {value}:"):
            self.text.line(f"chunks.append({out})")
            self.text.line(f"chunks.append({value})")
            self.text.line(f"{out} = bytearray()")

    def write_array(self, source: str, field: FieldLayout, flexible: bool, out: str) -> None:
        """Write an array: count, then the elements in a loop."""
        code = length_code(field.type, True, flexible)
        null, extra = ("0", " + 1") if code == "B" else ("-1", "")
        items = self.text.fresh("a")
        if field.nullable:
            raw = self.text.fresh("v")
            self.text.line(f"{raw} = {source}")
            self.text.line(f"{items} = {raw} or ()")
            self.text.line(f"n = {null} if {raw} is None else len({items}){extra}")
        else:
            self.text.line(f"{items} = {source}")
            self.text.line(f"n = len({items}){extra}")
        self.write_length(code, out)
        if field.type in STRUCT_CODES:
            self.text.line(f'{out} += array_writer("{STRUCT_CODES[field.type]}", len({items}))(*{items})')
            return
        element = self.text.fresh("e")
        if field.struct is not None and field.struct.is_row:
            self.write_rows(element, items, field.struct, out)
            return
        with self.text.block(f"for {element} in {items}:"):
            if field.struct is not None:
                self.write_fields(f"{element}.", field.struct, out)
            else:
                single = FieldLayout(
                    name=field.name, type=field.type, array=False, nullable=False, tag=None, default=None, struct=None
                )
                self.write_field(element, single, flexible, out)
            self.flush(out)

    def write_rows(self, element: str, items: str, layout: StructLayout, out: str) -> None:
        """Write rows, each taken apart; one in which all that has a length is empty goes out in one pack."""
        place = f"{element}_"
        targets = ", ".join(f"{place}{name}" for name in layout.names)
        with self.text.block(f"for {targets}, in {items}:"):
            *others, last = layout.fields
            empty = _empty(place, layout, others)
            if empty and last.type == "records":
                with self.text.block(f"if {' and '.join(empty)}:"):
                    with self.text.block(f"if not {place}{last.name}:"):
                        self.write_numbers(place, layout, layout.fields, out)
                    self.run = [_number(place, field, layout.flexible) for field in others]
                    there = replace(last, nullable=False)
                    self.write_bytes(f"{place}{last.name}", there, layout.flexible, out)
                    self.write_numbers(place, layout, (), out)
            elif empty := _empty(place, layout, layout.fields):
                with self.text.block(f"if {' and '.join(empty)}:"):
                    self.write_numbers(place, layout, layout.fields, out)
            self.write_fields(place, layout, out)
            self.flush(out)

    def write_numbers(self, place: str, layout: StructLayout, fields: Iterable[FieldLayout], out: str) -> None:
        """Write `fields`, which end the row, as a run of numbers; there are no tags. Go on with the next row."""
        self.run = [_number(place, field, layout.flexible) for field in fields] + [("0", "B")] * layout.flexible
        self.flush(out)
        self.text.line("continue")

    def write_tags(self, place: str, layout: StructLayout, out: str) -> None:
        """Write the tag section: only fields that differ from their default."""
        self.flush(out)
        same = _all_same(place, layout)
        with self.text.block(f"if {' and '.join(same)}:"):
            self.text.line(f"{out} += b'\\x00'")
        with self.text.block("else:"):
            count, tags = self.text.fresh("c"), self.text.fresh("t")
            self.text.line(f"{count} = 0")
            self.text.line(f"{tags} = bytearray()")
            for field in layout.tagged:
                with self.text.block(
                    f"if {_differs(f'{place}{field.name}', field, default_name(layout, field.name))}:"
                ):
                    self.text.line(f"{count} += 1")
                    self.write_tagged(f"{place}{field.name}", field, layout.flexible, tags)
            self.text.line(f"{out} += uvarint({count})")
            self.text.line(f"{out} += {tags}")

    def write_tagged(self, source: str, field: FieldLayout, flexible: bool, tags: str) -> None:
        """Write one tagged field behind its tag and its size, which needs no look if it is always the same."""
        assert field.tag is not None
        size = _fixed_size(field)
        if size is not None:
            self.run = [(str(number), "B") for number in (*uvarint(field.tag), *uvarint(size))]
            self.write_field(source, field, flexible, tags)
            self.flush(tags)
            return
        body = self.text.fresh("t")
        self.text.line(f"{body} = bytearray()")
        self.write_field(source, field, flexible, body)
        self.flush(body)
        self.text.line(f"{tags} += {uvarint(field.tag)!r} + uvarint(len({body})) + {body}")


def _fixed_size(field: FieldLayout) -> int | None:
    """The size of all values of a field, if they have one."""
    if field.array or field.nullable:
        return None
    if field.struct is not None:
        numbers = _numbers_of(field)
        return sum(SIZES[STRUCT_CODES[each.type]] for each in numbers) + field.struct.flexible if numbers else None
    return 16 if field.type == "uuid" else SIZES.get(STRUCT_CODES.get(field.type, ""))


def _numbers_of(field: FieldLayout) -> Sequence[FieldLayout]:
    """The fields of a struct that has nothing but numbers; else none."""
    struct = field.struct
    if struct is None or field.array or field.nullable or struct.tagged or not all(map(_is_number, struct.fields)):
        return ()
    return struct.fields


def _differs(source: str, field: FieldLayout, default: str) -> str:
    """The condition under which a tagged field is written; what is compared by Python code only as a last resort."""
    if _is_number(field):
        return f"{source} != {default}"
    numbers = _numbers_of(field)
    unequal = " or ".join(f"{source}.{each.name} != {default}.{each.name}" for each in numbers)
    return f"{source} is not {default} and ({unequal or f'{source} != {default}'})"


def _all_same(place: str, layout: StructLayout) -> list[str]:
    """Comparisons with the defaults that decide the fast path; a wrong "differs" only costs time."""
    return [f"{place}{field.name} {_same(field)} {default_name(layout, field.name)}" for field in layout.tagged]


def _same(field: FieldLayout) -> str:
    return "==" if _is_number(field) else "is"


def _is_number(field: FieldLayout) -> bool:
    return field.type in STRUCT_CODES and not field.array


def _empty(place: str, layout: StructLayout, fields: Sequence[FieldLayout]) -> list[str]:
    """The conditions under which `fields` of a row are a run of numbers without tags; none if never, or always."""
    if not all(_is_number(f) or f.array or f.type in ("bytes", "records") or f.nullable for f in fields):
        return []
    return [f"not {place}{f.name}" for f in fields if not _is_number(f)] + _all_same(place, layout)


def _number(place: str, field: FieldLayout, flexible: bool) -> tuple[str, str]:
    """A field of such a row: a number, or the length of something empty."""
    source = f"{place}{field.name}"
    if _is_number(field):
        return source, STRUCT_CODES[field.type]
    code = length_code(field.type, field.array, flexible)
    null, empty = ("0", "1") if code == "B" else ("-1", "0")
    return f"{null} if {source} is None else {empty}" if field.nullable else empty, code
