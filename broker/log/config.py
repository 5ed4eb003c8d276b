"""The topic settings that the log itself obeys

Field names are Kafka's topic keys with underscores for dots, so `LogConfig.of` can be fed the settings of a topic as
they are. Settings that other parts obey (replication throttles, remote storage) are not here.

`cleanup.policy` says what becomes of old data: `compact` keeps the last value of every key (`cleaner`), `delete`
removes segments by age and size (`retention`); with both, both.
"""

import dataclasses
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How one topic's partitions are stored."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    segment_bytes: int = 2**30
    segment_ms: int = 604_800_000
    segment_index_bytes: int = 10 * 2**20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 86_400_000
    segment_jitter_ms: int = 0
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_zstd_level: int = 3
    record_validation: str = "header"  # not of a topic: the broker's `log.record.validation`

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> "LogConfig":
        """Pick the log's settings out of the typed settings of a topic (`retention.ms` -> `retention_ms`)."""
        names = {field.name.replace("_", "."): field.name for field in dataclasses.fields(cls)}
        return cls(**{names[key]: value for key, value in settings.items() if key in names})  # type: ignore[arg-type]

    @property
    def walks_records(self) -> bool:
        """Whether the records of a produced batch are looked at, not only its header."""
        return self.record_validation == "records" or self.compacted

    @property
    def compacted(self) -> bool:
        """Whether the topic promises to keep the last value of every key."""
        return "compact" in self.cleanup_policy

    @property
    def deletes_by_age_or_size(self) -> bool:
        """Whether retention may remove old segments."""
        return "delete" in self.cleanup_policy

    @property
    def segment_ms_max(self) -> int:
        """Age at which a segment is closed; a record that must be compacted soon may not stay in the active one."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    def roll_after_ms(self, segment: str) -> int:
        """Age at which this segment is closed: less its share of the jitter, which is the same whenever asked."""
        jitter_ms = min(self.segment_jitter_ms, self.segment_ms)
        return self.segment_ms_max - (zlib.crc32(segment.encode()) % jitter_ms if jitter_ms else 0)

    @property
    def append_time(self) -> bool:
        """Whether the broker's clock stamps records."""
        return self.message_timestamp_type == "LogAppendTime"
