"""The one door from Spark code to the core

Spark drivers and executors share their interpreter with the user's program, so the Spark artifact carries its own copy
of the core; this file is the only one that has to know.

Names are imported when they are first asked for. Spark starts a Python process for every step of planning, and one that
only plans offsets must not pay for the record reader and the network client.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.client.batches import READ_COMMITTED, READ_UNCOMMITTED, Fetched, FetchWant
    from core.client.cluster import ClusterClient
    from core.client.connection import ConnectionFailed
    from core.config import (
        REQUIRED,
        ConfigError,
        ConfigKey,
        ConfigTable,
        ConfigType,
        Importance,
        Value,
        in_range,
        not_empty,
        one_of,
        parse_config_text,
    )
    from core.errors import CorruptMessage, KafkaError, OffsetOutOfRange, UnknownTopicId, error_for_code
    from core.records.batch import HEADER_BYTES, BatchView, iter_batches
    from core.records.builder import build_batch
    from core.records.compression import decompress
    from core.records.record import NewRecord
    from core.runtime.clock import Clock, SystemClock
    from core.types import ZERO_UUID, TopicPartition

_MODULES = {
    "core.client.batches": ("FetchWant", "Fetched", "READ_COMMITTED", "READ_UNCOMMITTED"),
    "core.client.cluster": ("ClusterClient",),
    "core.client.connection": ("ConnectionFailed",),
    "core.config": (
        "ConfigError",
        "ConfigKey",
        "ConfigTable",
        "ConfigType",
        "Importance",
        "REQUIRED",
        "Value",
        "in_range",
        "not_empty",
        "one_of",
        "parse_config_text",
    ),
    "core.errors": ("CorruptMessage", "KafkaError", "OffsetOutOfRange", "UnknownTopicId", "error_for_code"),
    "core.records.batch": ("BatchView", "HEADER_BYTES", "iter_batches"),
    "core.records.builder": ("build_batch",),
    "core.records.compression": ("decompress",),
    "core.records.record": ("NewRecord",),
    "core.runtime.clock": ("Clock", "SystemClock"),
    "core.types": ("TopicPartition", "ZERO_UUID"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name of the core and keep it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
    return value


__all__ = [
    "HEADER_BYTES",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "REQUIRED",
    "ZERO_UUID",
    "BatchView",
    "Clock",
    "ClusterClient",
    "ConfigError",
    "ConfigKey",
    "ConfigTable",
    "ConfigType",
    "ConnectionFailed",
    "CorruptMessage",
    "FetchWant",
    "Fetched",
    "Importance",
    "KafkaError",
    "NewRecord",
    "OffsetOutOfRange",
    "SystemClock",
    "TopicPartition",
    "UnknownTopicId",
    "Value",
    "build_batch",
    "decompress",
    "error_for_code",
    "in_range",
    "iter_batches",
    "not_empty",
    "one_of",
    "parse_config_text",
]
