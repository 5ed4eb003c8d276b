"""Tidemill for plugin authors: everything a source, sink or test needs

Import from here and nowhere else of this distribution. The names are those of the plugin contract and of the
decorators that turn a function into a plugin.

The names are loaded when they are first used: every command and every task process imports this package, and most of
them need none of it.

Importing also makes sure that the package named `core` is this distribution's: its name is a common one, and a folder
of the same name in front of it on the path would otherwise fail much later and much stranger.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import core

if TYPE_CHECKING:
    from connect.api import (
        ConverterSpec,
        EncodedBatch,
        EndOfInput,
        Fatal,
        Headers,
        InvalidConfig,
        JobTask,
        Json,
        NotConnected,
        PartialFailure,
        Plugin,
        PluginError,
        PluginKind,
        Record,
        RetryAfter,
        Schema,
        SchemaField,
        SchemaType,
        SinkTask,
        SourceOffset,
        SourceOutput,
        SourcePartition,
        SourceTask,
        TaskContext,
    )
    from connect.sdk import Pos, check, sink, source, task_split

__all__ = [
    "ConverterSpec",
    "EncodedBatch",
    "EndOfInput",
    "Fatal",
    "Headers",
    "InvalidConfig",
    "JobTask",
    "Json",
    "NotConnected",
    "PartialFailure",
    "Plugin",
    "PluginError",
    "PluginKind",
    "Pos",
    "Record",
    "RetryAfter",
    "Schema",
    "SchemaField",
    "SchemaType",
    "SinkTask",
    "SourceOffset",
    "SourceOutput",
    "SourcePartition",
    "SourceTask",
    "TaskContext",
    "check",
    "sink",
    "source",
    "task_split",
]


_DECORATORS = ("Pos", "check", "sink", "source", "task_split")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tidemill' has no attribute {name!r}")
    module = importlib.import_module("connect.sdk" if name in _DECORATORS else "connect.api")
    globals()[name] = getattr(module, name)
    return globals()[name]


def _folder(file: str | None) -> Path:
    return Path(file).resolve().parent.parent if file else Path()


def refuse_foreign_core(ours: str | None, found: str | None) -> None:
    """Raise ImportError when `core` was found beside some other package than `tidemill`."""
    if found is None or _folder(ours) != _folder(found):
        raise ImportError(
            f"'import core' finds {found or 'a folder without __init__.py'} instead of tidemill's own package: "
            "rename or move that folder, or run Python with -P so that the current folder is not searched first"
        )


refuse_foreign_core(__file__, core.__file__)
