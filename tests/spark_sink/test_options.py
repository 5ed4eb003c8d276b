"""The source's options: names, precedence, refusals"""

from pathlib import Path

import pytest

from tidemill.spark_sink.options import (
    EARLIEST,
    LATEST,
    NAMES,
    OptionError,
    client_settings,
    parse_offsets,
    parse_options,
)

BASE = {"kafka.bootstrap.servers": "h:9092", "subscribe": "a, b"}


def parse(streaming: bool = True, **more: str):  # type: ignore[no-untyped-def]
    return parse_options(
        {**BASE, **{name.replace("__", "."): value for name, value in more.items()}}, streaming=streaming
    )


def test_defaults_are_those_of_the_kafka_source() -> None:
    stream, batch = parse(), parse(streaming=False)
    assert stream.selection.subscribe == ("a", "b")
    assert (stream.starting.default, batch.starting.default, batch.ending.default) == (LATEST, EARLIEST, LATEST)
    assert stream.fail_on_data_loss and not stream.include_headers and stream.min_partitions is None
    assert not stream.read_committed and stream.is_plaintext and stream.group_id is None


def test_names_ignore_case_as_spark_hands_them_over() -> None:
    options = parse(maxoffsetspertrigger="7", MINPARTITIONS="3", includeheaders="TRUE", failondataloss="false")
    assert (options.max_offsets_per_trigger, options.min_partitions) == (7, 3)
    assert options.include_headers and not options.fail_on_data_loss


def test_positions_and_their_precedence() -> None:
    options = parse(startingOffsets='{"a": {"0": 5, "1": -2}}')
    assert options.starting.offsets == {"a": {0: 5, 1: -2}}
    by_time = parse(startingOffsets="earliest", startingOffsetsByTimestamp='{"a": {"0": 1000}}')
    assert by_time.starting.timestamps_ms == {"a": {0: 1000}} and not by_time.starting.offsets
    assert parse(startingTimestamp="9", startingOffsetsByTimestamp="{}").starting.timestamp_ms == 9
    assert parse(startingOffsets="EARLIEST").starting.default == EARLIEST


def test_client_options_lose_their_prefix_and_java_names_are_translated() -> None:
    settings = client_settings(
        {"kafka.bootstrap.servers": "h:1", "kafka.request.timeout.ms": "5", "kafka.max.poll.records": "9", "x": "y"}
    )
    assert settings == {"bootstrap.servers": "h:1", "socket.timeout.ms": "5"}
    assert not parse(kafka__security__protocol="SASL_SSL").is_plaintext
    assert parse(kafka__isolation__level="read_committed").read_committed


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"maxOffsetsPerTrigger": "many"}, "whole number"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "is above"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"startingOffsets": "soon"}, "neither 'earliest', 'latest' nor valid JSON"),
        ({"startingOffsets": '{"a": 5}'}, "must look like"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "at least -2"),
        ({"startingOffsets": '{"a": {"x": 3}}'}, "whole numbers"),
        ({"subscribePattern": "a.*"}, "found subscribe and subscribePattern"),
        ({"endingOffsets": "latest"}, "batch reads only"),
        ({"decode": "avro"}, "one of debezium"),
        ({"maxTriggerDelay": "long"}, "duration"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit is not supported"),
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.username"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options({**BASE, **more}, streaming=True)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is required"):
        parse_options({"subscribe": "a"}, streaming=True)
    with pytest.raises(OptionError, match="found none"):
        parse_options({"kafka.bootstrap.servers": "h:1"}, streaming=True)
    with pytest.raises(OptionError, match="names no topic"):
        parse_options({"kafka.bootstrap.servers": "h:1", "subscribe": " , "}, streaming=True)


def test_a_batch_read_needs_a_beginning_and_an_end() -> None:
    with pytest.raises(OptionError, match="nothing to read"):
        parse(streaming=False, startingOffsets="latest")
    with pytest.raises(OptionError, match="endingOffsets cannot be"):
        parse(streaming=False, endingOffsets="earliest")


def test_other_ways_to_select() -> None:
    base = {"kafka.bootstrap.servers": "h:1"}
    assigned = parse_options({**base, "assign": '{"t": [0, 2]}'}, streaming=True).selection
    assert assigned.assign == {"t": (0, 2)}
    assert parse_options({**base, "subscribePattern": "a.*"}, streaming=True).selection.pattern == "a.*"
    for wrong in ("[]", '{"t": []}', '{"t": ["x"]}', "{"):
        with pytest.raises(OptionError, match="assign"):
            parse_options({**base, "assign": wrong}, streaming=True)
    with pytest.raises(OptionError, match="regular expression"):
        parse_options({**base, "subscribePattern": "("}, streaming=True)


def test_durations() -> None:
    for text, expected in (
        ("90", 90),
        ("7ms", 7),
        ("2000us", 2),
        ("30s", 30_000),
        ("15m", 900_000),
        ("1 h", 3_600_000),
        ("2min", 120_000),
        ("15 minutes", 900_000),
        ("1 Hour", 3_600_000),
        ("2 days", 172_800_000),
    ):
        assert parse(maxTriggerDelay=text).max_trigger_delay_ms == expected, text
    for wrong in ("15 monthes", "soon", "-1s", "1.5m"):
        with pytest.raises(OptionError, match="must be a duration such as 30s, 15m or 15 minutes"):
            parse(maxTriggerDelay=wrong)


def test_offsets_are_read_as_numbers() -> None:
    assert parse_offsets('{"t": {"0": "12"}}', "x") == {"t": {0: 12}}


def test_every_option_is_on_the_page_about_spark() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
    assert [name for name in NAMES if name != "path" and f"`{name}`" not in page] == []
