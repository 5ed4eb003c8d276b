"""Dates and times"""

from datetime import UTC, date, datetime, time, timedelta

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import Json
from tidemill.connect.plugins.postgres.types import temporal
from tidemill.connect.plugins.postgres.types.conversion import Conversion, Modes

EPOCH = datetime(1970, 1, 1)


def convert(conversion: Conversion, text: str) -> Json:
    return orjson.loads(conversion.convert(text.encode()))


def postgres_text(moment: datetime) -> str:
    """A timestamp as PostgreSQL writes it: no zeros at the end of the fraction."""
    text = moment.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text


@given(st.datetimes())
def test_timestamps_are_microseconds(moment: datetime) -> None:
    expected = (moment - EPOCH) // timedelta(microseconds=1)
    assert temporal.timestamp_us(postgres_text(moment).encode()) == expected


@given(st.dates())
def test_dates_are_days(day: date) -> None:
    assert temporal.days(day.isoformat().encode()) == (day - EPOCH.date()).days
    assert temporal.days_from_civil(day.year, day.month, day.day) == (day - EPOCH.date()).days


@given(st.times())
def test_times_are_microseconds_of_the_day(clock: time) -> None:
    text = clock.isoformat()
    expected = (datetime.combine(EPOCH, clock) - EPOCH) // timedelta(microseconds=1)
    assert temporal.time_us((text.rstrip("0") if "." in text else text).encode()) == expected


@given(st.datetimes(timezones=st.just(UTC)), st.integers(0, 6))
def test_zoned_timestamps_are_iso_text_padded_to_the_precision(moment: datetime, digits: int) -> None:
    kept = moment.replace(microsecond=moment.microsecond // 10 ** (6 - digits) * 10 ** (6 - digits))
    text = convert(temporal.zoned_timestamp(digits), postgres_text(kept) + "+00")
    assert datetime.fromisoformat(text) == kept
    assert len(text) == 20 + (digits + 1 if digits else 0)


ADAPTIVE = Modes()
CONNECT = Modes(time="connect")
ISO = Modes(time="isostring")


def test_a_date_alone_is_no_timestamp() -> None:
    """As in a default, whose type need not be that of the column."""
    for mode in ("isostring", "microseconds"):
        with pytest.raises(ValueError, match="not a"):
            temporal.timestamp(-1, Modes(time=mode)).convert(b"2026-01-01")


@pytest.mark.parametrize(
    ("conversion", "text", "expected"),
    [
        (temporal.timestamp(-1, ADAPTIVE), "2026-02-03 04:05:06.789012", 1770091506789012),
        (temporal.timestamp(6, ADAPTIVE), "1900-02-03 04:05:06.789012", -2206122893210988),
        (temporal.timestamp(0, ADAPTIVE), "1582-10-04 00:00:00", -12220243200000),
        (temporal.timestamp(3, ADAPTIVE), "2026-02-03 04:05:06.789", 1770091506789),
        (temporal.timestamp(-1, ADAPTIVE), "0044-03-15 01:02:03 BC", -63517820277000000),
        (temporal.timestamp(-1, ADAPTIVE), "0044-03-15 01:02:03.5 BC", -63517820276500000),
        (temporal.timestamp(-1, ADAPTIVE), "12026-02-03 04:05:06.5", 317339611506500000),
        (temporal.timestamp(-1, ADAPTIVE), "infinity", 9223372036825200000),
        (temporal.timestamp(3, ADAPTIVE), "-infinity", -9223372036832400),
        (temporal.timestamp(6, CONNECT), "1900-02-03 04:05:06.789012", -2206122893211),
        (temporal.timestamp(3, Modes(time="microseconds")), "-infinity", -9223372036832400000),
        (temporal.timestamp(-1, Modes(time="nanoseconds")), "2026-02-03 04:05:06.789012", 1770091506789012000),
        (temporal.timestamp(-1, Modes(time="nanoseconds")), "infinity", 2**63 - 1),
        (temporal.timestamp(-1, Modes()), "294247-01-10 04:00:54.775807", 2**63 - 1),
        (temporal.timestamp(-1, Modes()), "294247-01-10 04:00:54.775808", 2**63 - 1),
        (temporal.timestamp(-1, Modes(time="microseconds")), "294276-12-31 23:59:59.999999", 2**63 - 1),
        (temporal.timestamp(-1, Modes(time="connect")), "294276-12-31 23:59:59.999999", 9224318015999999),
        (temporal.timestamp(-1, ISO), "2026-02-03 04:05:06.789012", "2026-02-03T04:05:06.789012Z"),
        (temporal.timestamp(-1, ISO), "0044-03-15 01:02:03 BC", "-0043-03-15T01:02:03Z"),
        (temporal.timestamp(-1, ISO), "12026-02-03 04:05:06.5", "+12026-02-03T04:05:06.5Z"),
        (temporal.timestamp(-1, ISO), "infinity", "+294247-01-10T04:00:25.2Z"),
        (temporal.date(ADAPTIVE), "2026-02-03", 20487),
        (temporal.date(ADAPTIVE), "12026-02-03", 3672912),
        (temporal.date(ADAPTIVE), "0044-03-15 BC", -735160),
        (temporal.date(ADAPTIVE), "infinity", 2**31 - 1),
        (temporal.date(CONNECT), "1969-12-31", -1),
        (temporal.date(ISO), "2026-02-03", "2026-02-03Z"),
        (temporal.date(ISO), "infinity", "+292278994-08-16Z"),
        (temporal.time(-1, ADAPTIVE), "04:05:06.789012", 14706789012),
        (temporal.time(-1, ADAPTIVE), "24:00:00", 86400000000),
        (temporal.time(3, ADAPTIVE), "04:05:06.789", 14706789),
        (temporal.time(3, Modes(time="adaptive_time_microseconds")), "04:05:06.789", 14706789000),
        (temporal.time(-1, CONNECT), "04:05:06.789012", 14706789),
        (temporal.time(-1, Modes(time="nanoseconds")), "00:00:00.000001", 1000),
        (temporal.time(-1, ISO), "04:05:06.789012", "04:05:06.789012Z"),
        (temporal.time(-1, ISO), "24:00:00", "00:00:00Z"),
        (temporal.zoned_timestamp(-1), "2026-01-01 00:00:00.1+00", "2026-01-01T00:00:00.100000Z"),
        (temporal.zoned_timestamp(0), "2026-02-03 02:05:06+00", "2026-02-03T02:05:06Z"),
        (temporal.zoned_timestamp(-1), "0044-03-15 01:02:03+00 BC", "-0043-03-15T01:02:03.000000Z"),
        (temporal.zoned_timestamp(-1), "12026-02-03 04:05:06+00", "+12026-02-03T04:05:06.000000Z"),
        (temporal.zoned_timestamp(-1), "infinity", "infinity"),
        (temporal.zoned_timestamp(-1), "-infinity", "-infinity"),
        (temporal.zoned_time(), "04:05:06.789012+02", "02:05:06.789012Z"),
        (temporal.zoned_time(), "04:05:06.7+02", "02:05:06.7Z"),
        (temporal.zoned_time(), "00:00:00-07:30", "07:30:00Z"),
        (temporal.zoned_time(), "24:00:00+00", "00:00:00Z"),
        (temporal.zoned_time(), "23:59:60-15:59", "15:59:00Z"),
        (temporal.interval(ADAPTIVE), "P1Y2M3DT4H5M6.789S", 37091106789000),
        (temporal.interval(ADAPTIVE), "P-1M2DT-3H", -2467800000000),
        (temporal.interval(ADAPTIVE), "PT-0.5S", -500000),
        (temporal.interval(ADAPTIVE), "PT0S", 0),
        (temporal.interval(Modes(interval="string")), "P1Y2M3DT4H5M6.789S", "P1Y2M3DT4H5M6.789S"),
        (temporal.interval(Modes(interval="string")), "P-1M2DT-3H", "P0Y-1M2DT-3H0M0S"),
        (temporal.interval(Modes(interval="string")), "PT-0.5S", "P0Y0M0DT0H0M-0.5S"),
    ],
)
def test_literals(conversion: Conversion, text: str, expected: Json) -> None:
    assert convert(conversion, text) == expected


@pytest.mark.parametrize(
    ("conversion", "name"),
    [
        (temporal.timestamp(3, ADAPTIVE), "io.debezium.time.Timestamp"),
        (temporal.timestamp(4, ADAPTIVE), "io.debezium.time.MicroTimestamp"),
        (temporal.time(3, ADAPTIVE), "io.debezium.time.Time"),
        (temporal.time(-1, ADAPTIVE), "io.debezium.time.MicroTime"),
        (temporal.date(ADAPTIVE), "io.debezium.time.Date"),
        (temporal.timestamp(-1, CONNECT), "org.apache.kafka.connect.data.Timestamp"),
        (temporal.time(-1, CONNECT), "org.apache.kafka.connect.data.Time"),
        (temporal.date(CONNECT), "org.apache.kafka.connect.data.Date"),
        (temporal.timestamp(-1, ISO), "io.debezium.time.IsoTimestamp"),
        (temporal.interval(ADAPTIVE), "io.debezium.time.MicroDuration"),
        (temporal.interval(Modes(interval="string")), "io.debezium.time.Interval"),
        (temporal.zoned_timestamp(-1), "io.debezium.time.ZonedTimestamp"),
        (temporal.zoned_time(), "io.debezium.time.ZonedTime"),
    ],
)
def test_semantic_names(conversion: Conversion, name: str) -> None:
    assert (conversion.schema.name, conversion.schema.version) == (name, 1)


def test_the_memory_of_minutes_is_bounded() -> None:
    for day in range(1, 29):
        for hour in range(24):
            for minute in range(60):
                temporal.timestamp_us(b"2026-02-%02d %02d:%02d:00" % (day, hour, minute))
                temporal.timestamp_us(b"2025-02-%02d %02d:%02d:00" % (day, hour, minute))
    assert len(temporal._MINUTES) <= temporal.MEMO_SIZE_MAX


@pytest.mark.parametrize("text", ["", "x", "2026", "2026-02-03 04:05", "2026-02-03T04:05:06", "yesterday"])
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        temporal.timestamp_us(text.encode())
