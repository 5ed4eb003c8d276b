"""Source text of one decoder

`reader_source` writes a function `(b, o) -> (message, o)` for one layout. Neighbouring fixed-size fields, the length
prefix that follows them and the (nearly always empty) tag count are read by one `unpack_from`; nested structs are loops
in the same function. Running past the end surfaces as IndexError or struct.error, slices are checked against `end`
first.

Not here: which versions share a layout (`schema`), and what the names in the source stand for (`compiled`).
"""

from .schema import FieldLayout, StructLayout
from .source_text import (
    STRUCT_CODES,
    SourceText,
    default_name,
    element_bytes_min,
    fixed_bytes,
    has_fixed_size,
    length_code,
    struct_name,
)


def reader_source(function: str, layout: StructLayout, structs: set[str]) -> list[str]:
    """Return the lines of a decoder; adds the struct codes it needs to `structs`."""
    reader = _Reader(structs)
    with reader.text.block("end = len(b)"):
        pass
    target = reader.read_struct(layout)
    reader.flush()
    reader.text.line(f"return {target}, o")
    return [f"def {function}(b, o):", *reader.text.lines]


class _Reader:
    """The function being written; `run` holds fixed-size targets that wait for one common unpack."""

    def __init__(self, structs: set[str]) -> None:
        self.text = SourceText()
        self.structs = structs
        self.run: list[tuple[str, str]] = []

    def flush(self) -> None:
        """Write the pending run as one unpack."""
        if not self.run:
            return
        codes = "".join(code for _, code in self.run)
        if codes in ("B", "?"):
            suffix = " != 0" if codes == "?" else ""
            self.text.line(f"{self.run[0][0]} = b[o]{suffix}")
        else:
            self.structs.add(codes)
            targets = ", ".join(target for target, _ in self.run)
            comma = "," if len(self.run) == 1 else ""
            self.text.line(f"{targets}{comma} = _u_{struct_name(codes)}(b, o)")
        self.text.line(f"o += {fixed_bytes(codes)}")
        self.run = []

    def read_struct(self, layout: StructLayout) -> str:
        """Read a struct into a fresh variable, which is returned; the fields of a row have variables of their own."""
        target = self.text.fresh("s")
        if layout.is_row:
            self.read_fields(f"{target}_", layout)
            values = [
                default_name(layout, name) if name in layout.absent else f"{target}_{name}" for name in layout.names
            ]
            self.text.line(f"{target} = new_tuple({layout.name}, ({', '.join(values)},))")
            return target
        self.text.line(f"{target} = _{layout.name}()")
        self.read_fields(f"{target}.", layout)
        for name in layout.absent:
            self.text.line(f"{target}.{name} = {default_name(layout, name)}")
        self.text.line(f"{target}.__class__ = {layout.name}")
        return target

    def read_fields(self, place: str, layout: StructLayout) -> None:
        """Read all fields into targets whose names begin with `place`."""
        for field in layout.fields:
            self.read_field(f"{place}{field.name}", field, layout.flexible)
        for field in layout.tagged:
            self.text.line(f"{place}{field.name} = {default_name(layout, field.name)}")
        if layout.flexible:
            self.read_tags(place, layout)
        self.flush()

    def read_field(self, target: str, field: FieldLayout, flexible: bool) -> None:
        """Read one untagged field."""
        if field.array:
            self.read_array(target, field, flexible)
        elif field.struct is not None:
            self.read_struct_field(target, field)
        elif field.type in STRUCT_CODES:
            self.run.append((target, STRUCT_CODES[field.type]))
        elif field.type == "uuid":
            self.read_uuid(target)
        else:
            self.read_bytes(target, field, flexible)

    def read_uuid(self, target: str) -> None:
        """Read 16 bytes; the slice is as long as it should be because the next read or `end` says so."""
        self.flush()
        self.text.line("e = o + 16")
        with self.text.block("if e > end:"):
            self.text.line("fail_length(16, o, end)")
        self.text.line(f"{target} = uuid_from_bytes(bytes(b[o:e]))")
        self.text.line("o = e")

    def read_struct_field(self, target: str, field: FieldLayout) -> None:
        """Read a struct that is a field by itself."""
        assert field.struct is not None
        if not field.nullable:
            self.flush()
            self.text.line(f"{target} = {self.read_struct(field.struct)}")
            return
        self.run.append(("n", "b"))
        self.flush()
        with self.text.block("if n < 0:"):
            self.text.line(f"{target} = None")
        with self.text.block("else:"):
            self.text.line(f"{target} = {self.read_struct(field.struct)}")

    def read_length(self, code: str) -> None:
        """Read a length prefix into `n`; null becomes -1 (or less)."""
        self.run.append(("n", code))
        self.flush()
        if code == "B":
            with self.text.block("if n > 127:"):
                self.text.line("n, o = uvarint_tail(b, o, n)")

    def read_bytes(self, target: str, field: FieldLayout, flexible: bool) -> None:
        """Read a string, bytes or records."""
        code = length_code(field.type, False, flexible)
        self.read_length(code)
        length = "n - 1" if code == "B" else "n"
        value = {
            "string": 'str(b[o:e], "utf-8") if e > o else ""',
            "bytes": "bytes(b[o:e])",
            "records": "memoryview(b)[o:e]",
        }[field.type]
        if field.nullable:
            with self.text.block("if n == 0:" if code == "B" else "if n < 0:"):
                self.text.line(f"{target} = None")
            with self.text.block("else:"):
                self.text.line(f"e = o + {length}")
                with self.text.block("if e > end:"):
                    self.text.line(f"fail_length({length}, o, end)")
                self.text.line(f"{target} = {value}")
                self.text.line("o = e")
            return
        self.text.line(f"e = o + {length}")
        with self.text.block("if not o <= e <= end:"):
            self.text.line(f"fail_length({length}, o, end)")
        self.text.line(f"{target} = {value}")
        self.text.line("o = e")

    def read_array(self, target: str, field: FieldLayout, flexible: bool) -> None:
        """Read an array; its count must fit what is left before anything is built."""
        code = length_code(field.type, True, flexible)
        self.read_length(code)
        if code == "B":
            self.text.line("n -= 1")
        if field.nullable:
            with self.text.block("if n < 0:"):
                self.text.line(f"{target} = None")
            with self.text.block("else:"):
                self.read_elements(target, field, flexible)
        else:
            with self.text.block("if n < 0:"):
                self.text.line("fail_length(n, o, end)")
            self.read_elements(target, field, flexible)

    def read_elements(self, target: str, field: FieldLayout, flexible: bool) -> None:
        """Read `n` elements."""
        size = element_bytes_min(field, flexible)
        with self.text.block(f"if n * {size} > end - o:" if size > 1 else "if n > end - o:"):
            self.text.line("fail_length(n, o, end)")
        if field.type in STRUCT_CODES:
            self.text.line(f'{target} = array_reader("{STRUCT_CODES[field.type]}", n)(b, o)')
            self.text.line(f"o += n * {size}" if size > 1 else "o += n")
            return
        if field.struct is None or not has_fixed_size(field.struct):
            self.read_one_by_one(target, field, flexible)
        elif not flexible:
            self.read_rows(target, field.struct)
        else:
            with self.text.block(f"if n > 1 and not any(b[o + {size - 1}:o + n * {size}:{size}]):"):  # no tags
                self.read_rows(target, field.struct)
            with self.text.block("else:"):
                self.read_one_by_one(target, field, flexible)

    def read_rows(self, target: str, layout: StructLayout) -> None:
        """Read `n` rows of nothing but numbers at once."""
        codes = "".join(STRUCT_CODES[field.type] for field in layout.fields) + ("x" if layout.flexible else "")
        self.structs.add(codes)
        found = [field.name for field in layout.fields]
        values = [name if name in found else default_name(layout, name) for name in layout.names]
        self.text.line(f"e = o + n * {fixed_bytes(codes)}")
        with self.text.lines_of(f"{target} = tuple([", "])"):
            self.text.line(f"new_tuple({layout.name}, ({', '.join(values)},))")
            self.text.line(f"for {', '.join(found)}, in _i_{struct_name(codes)}(b[o:e])")
        self.text.line("o = e")

    def read_one_by_one(self, target: str, field: FieldLayout, flexible: bool) -> None:
        """Read `n` elements of any kind."""
        self.text.line(f"{target} = ()")
        with self.text.block("if n:"):
            self.read_some(target, field, flexible)

    def read_some(self, target: str, field: FieldLayout, flexible: bool) -> None:
        """Read `n` elements, of which there is one at least."""
        items = self.text.fresh("a")
        self.text.line(f"{items} = []")
        with self.text.block("for _ in range(n):"):
            if field.struct is not None:
                element = self.read_struct(field.struct)
            else:
                element = self.text.fresh("v")
                single = FieldLayout(
                    name=field.name, type=field.type, array=False, nullable=False, tag=None, default=None, struct=None
                )
                self.read_field(element, single, flexible)
                self.flush()
            self.text.line(f"{items}.append({element})")
        self.text.line(f"{target} = tuple({items})")

    def read_tags(self, place: str, layout: StructLayout) -> None:
        """Read the tag section; unknown tags are skipped."""
        self.run.append(("n", "B"))
        self.flush()
        if not layout.tagged:
            with self.text.block("if n:"):
                self.text.line("o = skip_tags(b, o, n, end)")
            return
        tag, tag_end = self.text.fresh("tag"), self.text.fresh("e")
        with self.text.block("if n:"):
            with self.text.block("if n > 127:"):
                self.text.line("n, o = uvarint_tail(b, o, n)")
            with self.text.block("for _ in range(n):"):
                self.text.line(f"{tag}, o = read_uvarint(b, o)")
                self.text.line("n, o = read_uvarint(b, o)")
                self.text.line(f"{tag_end} = o + n")
                with self.text.block(f"if {tag_end} > end:"):
                    self.text.line("fail_length(n, o, end)")
                keyword = "if"
                for field in layout.tagged:
                    with self.text.block(f"{keyword} {tag} == {field.tag}:"):
                        self.read_field(f"{place}{field.name}", field, layout.flexible)
                        self.flush()
                        with self.text.block(f"if o != {tag_end}:"):
                            self.text.line(f"fail_tag({tag}, o, {tag_end})")
                    keyword = "elif"
                with self.text.block("else:"):
                    self.text.line(f"o = {tag_end}")
