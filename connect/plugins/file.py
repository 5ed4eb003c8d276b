"""A file as a source and as a sink: the plugins to read first

They do what Kafka's own FileStream examples do and take the same settings and names, so a configuration written for
those works. What a plugin needs is all here: a settings model, a task with its few methods, and a `Plugin` that ties
them together under a name. An entry point of the group `tidemill.plugins` makes it known.

The source follows a file as it grows, one record per line, and stores as its offset how many bytes it has read. A
line without its end yet is left for later. Rules for a file that changes under it:

- Truncated (shorter than what was read): it is read again from its beginning.
- Replaced, as log rotation does (the path leads to another file): the old file is read to its end, a last line
  without an end included, then the new one from its beginning.
- Missing: nothing to read for now; it is looked for again at every poll. A task that waits is RUNNING all the same, so
  it says what for: a mistyped path looks like a file that is still to come.

While the task is down only a truncation can be told from growth, because the stored offset, like Kafka's, is a
position and nothing else.

The sink appends one line per record and lets the runtime commit what `flush` has forced to disk. After a crash the
records since the last commit are written again: lines may come twice, none is missing.
"""

import os
import stat
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import orjson
from pydantic import BaseModel, Field

from tidemill.connect.api import (
    Fatal,
    InvalidConfig,
    Plugin,
    PluginKind,
    Poison,
    Record,
    Schema,
    SchemaType,
    SinkTask,
    SourceOutput,
    SourceTask,
    TaskContext,
)

IDLE_S = 0.2  # between two looks at a file that has not grown
IDLE_MAX_S = 1.0  # when it has not for long, as Kafka's does it; a worker may have many that rest
READ_BYTES = 1 << 18
LINE_BYTES_MAX = 64 << 20  # a file without line ends would otherwise be read into memory whole
LINE_SCHEMA = Schema(type=SchemaType.STRING)
ABSENCE = "absence of the file"  # the problem of a source that waits for it


class FileSourceSettings(BaseModel):
    """Settings of the source."""

    file: str = Field(min_length=1, description="Path of the file to read", json_schema_extra={"importance": "HIGH"})
    topic: str = Field(min_length=1, description="Topic to write to", json_schema_extra={"importance": "HIGH"})
    batch_size: int = Field(
        default=2000,
        ge=1,
        alias="batch.size",
        description="How many lines to hand over at a time",
        json_schema_extra={"importance": "LOW"},
    )


class FileSource(SourceTask):
    """Follows one file."""

    def __init__(self, settings: FileSourceSettings) -> None:
        self._path = settings.file
        self._topic = settings.topic
        self._batch_size = settings.batch_size
        self._partition = {"filename": settings.file}
        self._file: BinaryIO | None = None
        self._rest = b""  # read, but not handed over
        self._position = 0  # of the first byte of `_rest`
        self._idle_s = IDLE_S
        self._read_whole: tuple[int, ...] | None = None  # what the file is like that has nothing new
        self._absent = False  # so the status says

    def start(self, context: TaskContext) -> None:
        """Take up the stored position."""
        self._problem = context.problem
        offset = context.offsets(self._partition)
        if offset is None:
            return
        position = offset.get("position")
        if not isinstance(position, int) or position < 0:
            raise Fatal(f"the stored offset {dict(offset)} is not a position: reset the connector's offsets")
        self._position = position

    def poll(self) -> Sequence[SourceOutput]:
        """Return the lines that are there."""
        if self._read_whole is not None and self._read_whole == self._looks():
            self._rest_a_while()
            return []
        self._read_whole = None
        file = self._file or self._open()
        if file is None:
            self._rest_a_while()
            return []
        lines = self._lines(file)
        if lines:
            self._idle_s = IDLE_S
            return self._records(lines)
        if not self._moved_on(file):
            looks = self._looks()
            if looks is not None and looks == self._looks(file) and looks[-1] == self._position + len(self._rest):
                self._read_whole = looks
            self._rest_a_while()
            return []
        # The last words of a file that was replaced need no line end.
        last = [self._rest] if self._rest else []
        records = self._records(last)
        self.stop()
        self._position = 0
        return records

    def stop(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._rest = b""
        self._read_whole = None

    def _rest_a_while(self) -> None:
        time.sleep(self._idle_s)
        self._idle_s = min(self._idle_s * 1.2, IDLE_MAX_S)

    def _note(self, *, absent: bool) -> None:
        """Say in the status that the file is not there, or is there again."""
        if absent == self._absent:
            return
        self._absent = absent
        path = os.path.abspath(self._path)
        message = f"the file {path} does not exist (yet) where this task runs; it is read as soon as it does"
        self._problem(ABSENCE, message if absent else None)

    def _looks(self, file: BinaryIO | None = None) -> tuple[int, ...] | None:
        """Which file there is under the path, or is open, and how long; None for what has no length of its own."""
        try:
            found = os.stat(self._path if file is None else file.fileno())
        except OSError:
            return None
        return (found.st_dev, found.st_ino, found.st_size) if stat.S_ISREG(found.st_mode) else None

    def _open(self) -> BinaryIO | None:
        try:
            file = open(self._path, "rb")  # noqa: SIM115  (closed by `stop`)
        except FileNotFoundError:
            self._note(absent=True)
            return None
        except OSError as error:
            raise Fatal(f"cannot read {self._path}: {error.strerror}") from error
        self._note(absent=False)
        if os.fstat(file.fileno()).st_size < self._position:
            self._position = 0
        file.seek(self._position)
        self._file = file
        return file

    def _lines(self, file: BinaryIO) -> list[bytes]:
        """Whole lines, at most a batch; what follows them stays in `_rest`."""
        while (ends := self._rest.count(b"\n")) < self._batch_size and not (ends and len(self._rest) > READ_BYTES):
            data = file.read(READ_BYTES)
            if not data:
                break
            self._rest += data
            if len(self._rest) > LINE_BYTES_MAX and b"\n" not in self._rest:
                raise Poison(f"{self._path} has a line of more than {LINE_BYTES_MAX} bytes at {self._position}")
        *lines, last = self._rest.split(b"\n", self._batch_size)
        self._rest = last
        return lines

    def _records(self, lines: list[bytes]) -> list[Record]:
        records = []
        for line in lines:
            self._position += len(line) + 1
            records.append(
                Record(
                    topic=self._topic,
                    value=line.removesuffix(b"\r").decode("utf-8", "replace"),
                    value_schema=LINE_SCHEMA,
                    partition=self._partition,
                    offset={"position": self._position},
                )
            )
        return records

    def _moved_on(self, file: BinaryIO) -> bool:
        """Whether the path leads to other content now; called when the open file has been read to its end."""
        opened = os.fstat(file.fileno())
        try:
            current = os.stat(self._path)
        except FileNotFoundError:
            self._note(absent=True)
            return False  # between the two steps of a rotation, or deleted: more may still be written to what is open
        self._note(absent=False)
        if (current.st_dev, current.st_ino) != (opened.st_dev, opened.st_ino):
            return True
        if opened.st_size < self._position + len(self._rest):
            self._rest = b""  # truncated: what was left of the old content is gone
            return True
        return False


def check_source(settings: FileSourceSettings) -> None:
    """Refuse a path that is there but cannot be read as a file."""
    if os.path.isdir(settings.file):
        raise InvalidConfig("file", f"{settings.file} is a directory.", "Name a file.")
    if os.path.exists(settings.file) and not os.access(settings.file, os.R_OK):
        raise InvalidConfig("file", f"{settings.file} is not readable.", "Let the worker's user read it.")


class FileSinkSettings(BaseModel):
    """Settings of the sink."""

    file: str = Field(
        min_length=1, description="Path of the file to append to", json_schema_extra={"importance": "HIGH"}
    )


class FileSink(SinkTask):
    """Appends the values of records to one file."""

    def __init__(self, settings: FileSinkSettings) -> None:
        self._path = settings.file
        self._file: BinaryIO | None = None

    def start(self, context: TaskContext) -> None:
        """Open the file for appending."""
        try:
            self._file = open(self._path, "ab")  # noqa: SIM115  (closed by `stop`)
        except OSError as error:
            raise Fatal(f"cannot write to {self._path}: {error.strerror}") from error

    def put(self, records: Sequence[Record]) -> None:
        """Write one line per record."""
        assert self._file is not None, "started before"
        self._file.write(b"".join(_line(record) for record in records))

    def flush(self) -> None:
        """Force what was written to disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def stop(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def check_sink(settings: FileSinkSettings) -> None:
    """Refuse a path that cannot be written to."""
    folder = os.path.dirname(os.path.abspath(settings.file))
    if os.path.isdir(settings.file):
        raise InvalidConfig("file", f"{settings.file} is a directory.", "Name a file.")
    if not os.access(settings.file if os.path.exists(settings.file) else folder, os.W_OK):
        raise InvalidConfig("file", f"{settings.file} is not writable.", "Let the worker's user write there.")


def _line(record: Record) -> bytes:
    value = record.value
    if isinstance(value, str):
        return value.encode() + b"\n"
    if isinstance(value, bytes):
        return value + b"\n"
    return orjson.dumps(value, default=str) + b"\n"


_JAVA: Mapping[PluginKind, str] = {
    PluginKind.SOURCE: "org.apache.kafka.connect.file.FileStreamSource",
    PluginKind.SINK: "org.apache.kafka.connect.file.FileStreamSink",
}

file_source = Plugin(
    name="FileStreamSource",
    kind=PluginKind.SOURCE,
    version="1.0",
    config=FileSourceSettings,
    task=FileSource,
    doc="Follows a text file and writes one record per line.",
    aliases=(f"{_JAVA[PluginKind.SOURCE]}Connector", "FileStreamSourceConnector"),
    java_task=f"{_JAVA[PluginKind.SOURCE]}Task",
    check=check_source,
)

file_sink = Plugin(
    name="FileStreamSink",
    kind=PluginKind.SINK,
    version="1.0",
    config=FileSinkSettings,
    task=FileSink,
    doc="Appends one line per record to a text file.",
    aliases=(f"{_JAVA[PluginKind.SINK]}Connector", "FileStreamSinkConnector"),
    java_task=f"{_JAVA[PluginKind.SINK]}Task",
    check=check_sink,
)
