"""Where a job goes on, kept until there is a table to keep it in

A position belongs into the table's log, but a Delta table has at least one column, and columns are known with the first
row. Until then the positions wait in a file beside the log-to-be, `_tidemill/<sink>.json`, spelled as the transaction
identifiers that the first commit turns them into, and move on with records that are no rows; then it is removed. It is
written under another name and then given its own, so it is whole or not there.
"""

import contextlib
import json
import os
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

from pyarrow.fs import FileSystem

FOLDER = "_tidemill"


class Starts:
    """The file of one job beside one table; every method may raise OSError."""

    def __init__(self, path: str, sink: str) -> None:
        self._path = path
        self._name = f"{urllib.parse.quote(sink, safe='')}.json"

    def read(self) -> dict[str, int]:
        """Identifier to position; empty when there is no file."""
        storage, folder = self._place()
        try:
            with storage.open_input_file(f"{folder}/{self._name}") as stream:
                data = bytes(stream.read())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {str(app): int(version) for app, version in json.loads(data).items()}

    def write(self, versions: Mapping[str, int]) -> None:
        """Replace the file's content."""
        storage, folder = self._place()
        storage.create_dir(folder, recursive=True)
        fresh = f"{folder}/{self._name}.{os.getpid()}"
        with storage.open_output_stream(fresh) as stream:
            stream.write(json.dumps(dict(sorted(versions.items()))).encode())
        storage.move(fresh, f"{folder}/{self._name}")

    def remove(self) -> None:
        """Forget the positions: the table has them."""
        storage, folder = self._place()
        with contextlib.suppress(FileNotFoundError):
            storage.delete_file(f"{folder}/{self._name}")
        if not is_remote(self._path):
            with contextlib.suppress(OSError):  # another job's are in there too
                Path(folder).rmdir()

    def _place(self) -> tuple[FileSystem, str]:
        uri = self._path if is_remote(self._path) else str(local_folder(self._path))
        storage, root = FileSystem.from_uri(uri)
        return storage, f"{root.rstrip('/')}/{FOLDER}"


def is_remote(path: str) -> bool:
    """Whether a table's path is a URI of an object store."""
    return "://" in path and not path.startswith("file://")


def local_folder(path: str) -> Path:
    """The folder of a table whose path is not remote."""
    return Path(path.removeprefix("file://")).absolute()
