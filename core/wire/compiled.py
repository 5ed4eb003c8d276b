"""Readers and writers, compiled from the schema when they are first used

A message that a process never meets costs it nothing, and of one that it meets only the layout of the version that is
spoken is compiled, in one to two milliseconds. The function is kept in the table of the message's class
(`READERS`, `WRITERS`) for all versions of equal layout. Its source is given to `linecache`, as dataclasses and attrs do
with theirs, so that a traceback shows the line that failed and a debugger can step through it.

A table is replaced, never changed. Two threads that ask for the same function at once both compile it and both get one
that works; should one of two entries be lost, it is compiled again when it is next asked for.
"""

import linecache
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from struct import Struct
from typing import Any

from tidemill.core.types import ZERO_UUID

from . import primitives
from .api import api_of
from .message import Message, Reader, Writer
from .reader_source import reader_source
from .schema import StructLayout, load_schema
from .source_text import struct_name
from .writer_source import writer_source

_Source = Callable[[str, StructLayout, set[str]], list[str]]

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
} | {"ZERO_UUID": ZERO_UUID}

_schema = lru_cache(maxsize=1)(load_schema)  # after the reader of a request comes the writer of its response


def compile_reader(cls: type[Message], version: int) -> Reader | None:
    """The reader of `cls` at `version`, from now on in its table; None if there is no such version."""
    readers = _compile(cls, version, "read", reader_source)
    cls.READERS = {**cls.READERS, **readers}
    return readers.get(version)


def compile_writer(cls: type[Message], version: int) -> Writer | None:
    """The writer of `cls` at `version`, from now on in its table; None if there is no such version."""
    writers = _compile(cls, version, "write", writer_source)
    cls.WRITERS = {**cls.WRITERS, **writers}
    return writers.get(version)


def _compile(cls: type[Message], version: int, verb: str, source_of: _Source) -> dict[int, Any]:
    """The function for `version` and for all versions like it."""
    api = api_of(cls)
    if api is None or not api.serves(version):
        return {}
    schema = _schema(api.name)
    root = schema.request if cls is api.request else schema.response
    versions = schema.versions_like(root, version)
    layout = schema.layout(root, version)
    name = f"{verb}_{cls.__name__}_{versions.first}"
    codes: set[str] = set()
    source = "\n".join(source_of(name, layout, codes)) + "\n"
    file = f"<tidemill: {verb} {cls.__name__} {versions}>"
    names = _names(cls.__module__, layout, codes)
    exec(compile(source, file, "exec"), names)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    return dict.fromkeys(range(versions.first, versions.last + 1), names[name])


def _names(module: str, layout: StructLayout, codes: set[str]) -> dict[str, Any]:
    """What the compiled source refers to."""
    names: dict[str, Any] = {"__name__": module, **_PIECES}
    classes = vars(import_module(module))
    for struct in layout.structs():
        cls = classes[struct.name]
        names |= {struct.name: cls, f"_{struct.name}": classes[f"_{struct.name}"], f"_d_{struct.name}": cls()}
    for code in codes:
        packed = Struct(f">{code}")
        names |= {f"_p_{struct_name(code)}": packed.pack, f"_u_{struct_name(code)}": packed.unpack_from}
    return names
