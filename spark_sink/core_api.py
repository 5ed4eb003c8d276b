"""The one door from Spark code to the core

Spark drivers and executors share their interpreter with the user's program, so the Spark artifact carries its own copy
of the core; this file is the only one that has to know.

Names are imported when they are first asked for. Spark starts a Python process for every step of planning, and one that
only plans offsets must not pay for the record reader and the network client.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.core.client.batches import READ_COMMITTED, READ_UNCOMMITTED, Fetched, FetchWant
    from tidemill.core.client.cluster import ClusterClient
    from tidemill.core.client.connection import ConnectionFailed
    from tidemill.core.config import (
        REQUIRED,
        ConfigError,
        ConfigKey,
        ConfigTable,
        ConfigType,
        Importance,
        Value,
        address_or_empty,
        in_range,
        not_empty,
        one_of,
        parse_address,
    )
    from tidemill.core.environment import gather, origin
    from tidemill.core.errors import (
        CorruptMessage,
        KafkaError,
        OffsetOutOfRange,
        PermanentError,
        UnknownTopicId,
        error_for_code,
    )
    from tidemill.core.records.batch import HEADER_BYTES, BatchView, iter_batches
    from tidemill.core.records.builder import build_batch
    from tidemill.core.records.compression import decompress
    from tidemill.core.records.record import NewRecord
    from tidemill.core.runtime.clock import Clock, SystemClock
    from tidemill.core.runtime.collected_parts import Collect, CollectedParts
    from tidemill.core.runtime.net import FrameBuffers, TcpDialer
    from tidemill.core.runtime.probe import Probe, ProbeServer, Reason
    from tidemill.core.security.client_tls import for_librdkafka
    from tidemill.core.types import ZERO_UUID, TopicPartition

_MODULES = {
    "tidemill.core.client.batches": ("FetchWant", "Fetched", "READ_COMMITTED", "READ_UNCOMMITTED"),
    "tidemill.core.client.cluster": ("ClusterClient",),
    "tidemill.core.client.connection": ("ConnectionFailed",),
    "tidemill.core.config": (
        "ConfigError",
        "ConfigKey",
        "ConfigTable",
        "ConfigType",
        "Importance",
        "REQUIRED",
        "Value",
        "address_or_empty",
        "in_range",
        "not_empty",
        "one_of",
        "parse_address",
    ),
    "tidemill.core.environment": ("gather", "origin"),
    "tidemill.core.errors": (
        "CorruptMessage",
        "KafkaError",
        "OffsetOutOfRange",
        "PermanentError",
        "UnknownTopicId",
        "error_for_code",
    ),
    "tidemill.core.records.batch": ("BatchView", "HEADER_BYTES", "iter_batches"),
    "tidemill.core.records.builder": ("build_batch",),
    "tidemill.core.records.compression": ("decompress",),
    "tidemill.core.records.record": ("NewRecord",),
    "tidemill.core.runtime.clock": ("Clock", "SystemClock"),
    "tidemill.core.runtime.collected_parts": ("Collect", "CollectedParts"),
    "tidemill.core.runtime.net": ("FrameBuffers", "TcpDialer"),
    "tidemill.core.runtime.probe": ("Probe", "ProbeServer", "Reason"),
    "tidemill.core.security.client_tls": ("for_librdkafka",),
    "tidemill.core.types": ("TopicPartition", "ZERO_UUID"),
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
    "Collect",
    "CollectedParts",
    "ConfigError",
    "ConfigKey",
    "ConfigTable",
    "ConfigType",
    "ConnectionFailed",
    "CorruptMessage",
    "FetchWant",
    "Fetched",
    "FrameBuffers",
    "Importance",
    "KafkaError",
    "NewRecord",
    "OffsetOutOfRange",
    "PermanentError",
    "Probe",
    "ProbeServer",
    "Reason",
    "SystemClock",
    "TcpDialer",
    "TopicPartition",
    "UnknownTopicId",
    "Value",
    "address_or_empty",
    "build_batch",
    "decompress",
    "error_for_code",
    "for_librdkafka",
    "gather",
    "in_range",
    "iter_batches",
    "not_empty",
    "one_of",
    "origin",
    "parse_address",
]
