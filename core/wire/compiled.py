"""Readers and writers, compiled from the schema when they are first used

A message that a process never meets costs it nothing, and of one that it meets only the layout of the version that is
spoken is compiled, in one to two milliseconds. The function is kept in the table of the message's class
(`READERS`, `WRITERS`) for all versions of equal layout. `linecache` is told how to write its source once more, so that
a traceback shows the line that failed and a debugger can step through it; until then nobody keeps the source.

A table is replaced, never changed. Two threads that ask for the same function at once both compile it and both get one
that works; should one of two entries be lost, it is compiled again when it is next asked for.
"""

import linecache
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from struct import Struct
from typing import Any, NamedTuple

from tidemill.core.types import new_tuple

from . import primitives
from .api import Api, api_of
from .message import Message, Reader, Writer
from .reader_source import reader_source
from .schema import StructLayout, VersionRange, load_schema
from .source_text import default_name, struct_name
from .writer_source import writer_source

_PIECES: dict[str, Any] = {
    piece.__name__: piece
    for piece in (
        primitives.array_reader,
        primitives.array_writer,
        primitives.fail_length,
        primitives.fail_tag,
        primitives.read_uvarint,
        primitives.skip_tags,
        primitives.uuid_from_bytes,
        primitives.uvarint,
        primitives.uvarint_tail,
    )
} | {"new_tuple": new_tuple}

_schema = lru_cache(maxsize=1)(load_schema)  # after the reader of a request comes the writer of its response


def compile_reader(cls: type[Message], version: int) -> Reader | None:
    """The reader of `cls` at `version`, from now on in its table; None if there is no such version."""
    readers = _compile("read", cls, version, reader_source)
    cls.READERS = {**cls.READERS, **readers}
    return readers.get(version)


def compile_writer(cls: type[Message], version: int) -> Writer | None:
    """The writer of `cls` at `version`, from now on in its table; None if there is no such version."""
    writers = _compile("write", cls, version, writer_source)
    cls.WRITERS = {**cls.WRITERS, **writers}
    return writers.get(version)


class _Function(NamedTuple):
    """One function to compile; to `linecache` the loader of a module that consists of it."""

    name: str
    api: Api
    cls: type[Message]
    version: int
    source_of: Callable[[str, StructLayout, set[str]], list[str]]

    def layout(self) -> tuple[VersionRange, StructLayout]:
        """The versions that it is for, and what they have on the wire."""
        schema = _schema(self.api.name)
        root = schema.request if self.cls is self.api.request else schema.response
        return schema.versions_like(root, self.version), schema.layout(root, self.version)

    def source(self, layout: StructLayout, codes: set[str]) -> str:
        """The source; adds the struct codes that it needs to `codes`."""
        return "\n".join([*self.source_of(self.name, layout, codes), ""])

    def get_source(self, _module: str) -> str:
        """The source once more, for somebody who looks at it."""
        return self.source(self.layout()[1], set())


def _compile(
    verb: str, cls: type[Message], version: int, source_of: Callable[[str, StructLayout, set[str]], list[str]]
) -> dict[int, Any]:
    """The function for `version` and for all versions like it."""
    api = api_of(cls)
    if api is None or not api.serves(version):
        return {}
    function = _Function(f"{verb}_{cls.__name__}", api, cls, version, source_of)
    versions, layout = function.layout()
    file = f"{api.name}.json: {verb} {cls.__name__} {versions}"
    codes: set[str] = set()
    code = compile(function.source(layout, codes), file, "exec")
    names = names_for(layout, codes, vars(import_module(cls.__module__))) | {"__loader__": function}
    exec(code, names)
    linecache.lazycache(file, names)
    return dict.fromkeys(range(versions.first, versions.last + 1), names[function.name])


def names_for(layout: StructLayout, codes: set[str], classes: Mapping[str, Any]) -> dict[str, Any]:
    """What the source of a reader or a writer refers to; `classes` is the module that has the messages."""
    names: dict[str, Any] = {"__name__": classes["__name__"], **_PIECES}
    for struct in layout.structs():
        cls = classes[struct.name]
        names[struct.name] = cls
        if not struct.is_row:
            names[f"_{struct.name}"] = classes[f"_{struct.name}"]
        default = cls()
        for field in (*struct.absent, *(field.name for field in struct.tagged)):
            names[default_name(struct, field)] = getattr(default, field)
    for code in codes:
        packed, suffix = Struct(f">{code}"), struct_name(code)
        names |= {f"_p_{suffix}": packed.pack, f"_u_{suffix}": packed.unpack_from, f"_i_{suffix}": packed.iter_unpack}
    return names
