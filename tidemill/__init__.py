"""Tidemill for plugin authors: everything a source, sink or test needs

Import from here and nowhere else of this distribution. The names are those of the plugin contract and of the
decorators that turn a function into a plugin.

The names are loaded when they are first used: every command and every task process imports this package, and most of
them need none of it.

The parts (`tidemill.core`, `tidemill.broker`, ...) lie at the top of the repository and are linked into this folder;
the wheel has them here. They are ours and may change.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.connect.api import (
        Computing,
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
        Poison,
        Predicate,
        Record,
        ReportProblem,
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
        Transform,
        Unsupported,
        ValueTransform,
    )
    from tidemill.connect.sdk import Pos, check, flush, sink, source, task_split, transform

__all__ = [
    "Computing",
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
    "Poison",
    "Pos",
    "Predicate",
    "Record",
    "ReportProblem",
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
    "Transform",
    "Unsupported",
    "ValueTransform",
    "check",
    "flush",
    "sink",
    "source",
    "task_split",
    "transform",
]


_DECORATORS = ("Pos", "check", "flush", "sink", "source", "task_split", "transform")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tidemill' has no attribute {name!r}")
    module = importlib.import_module("tidemill.connect.sdk" if name in _DECORATORS else "tidemill.connect.api")
    globals()[name] = getattr(module, name)
    return globals()[name]
