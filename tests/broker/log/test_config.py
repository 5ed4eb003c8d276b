"""Log settings are picked out of the settings of a topic"""

from tidemill.broker.log.config import LogConfig


def test_settings_are_taken_by_kafkas_names_and_others_left_alone() -> None:
    config = LogConfig.of({"retention.ms": 5, "segment.bytes": 77, "remote.storage.enable": True})
    assert (config.retention_ms, config.segment_bytes) == (5, 77)
    assert config.max_message_bytes == LogConfig().max_message_bytes


def test_only_the_policy_delete_removes_by_age_or_size() -> None:
    assert LogConfig().deletes_by_age_or_size
    assert not LogConfig().compacted
    assert LogConfig(cleanup_policy=("compact", "delete")).compacted
    assert not LogConfig(cleanup_policy=("compact",)).deletes_by_age_or_size
    assert LogConfig(cleanup_policy=("compact", "delete")).deletes_by_age_or_size


def test_a_record_that_must_be_compacted_soon_does_not_stay_in_the_active_segment() -> None:
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=10).segment_ms_max == 100
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=10, cleanup_policy=("compact",)).segment_ms_max == 10
    assert LogConfig(segment_ms=5, max_compaction_lag_ms=10, cleanup_policy=("compact",)).segment_ms_max == 5


def test_timestamp_type() -> None:
    assert not LogConfig().append_time
    assert LogConfig(message_timestamp_type="LogAppendTime").append_time


def test_jitter_spreads_the_age_at_which_segments_are_closed() -> None:
    config = LogConfig(segment_ms=1000, segment_jitter_ms=300)
    ages = {config.roll_after_ms(f"t-{number}@0") for number in range(200)}
    assert len(ages) > 50
    assert min(ages) > 700
    assert max(ages) <= 1000
    assert config.roll_after_ms("t-0@0") == config.roll_after_ms("t-0@0")
    assert LogConfig(segment_ms=1000).roll_after_ms("t-0@0") == 1000
    assert LogConfig(segment_ms=10, segment_jitter_ms=10**9).roll_after_ms("t-0@0") > 0


def test_records_are_walked_where_somebody_wants_it() -> None:
    assert not LogConfig().walks_records
    assert LogConfig(record_validation="records").walks_records
    assert LogConfig(cleanup_policy=("compact",)).walks_records
