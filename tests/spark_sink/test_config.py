"""Job settings"""

import pytest

from tidemill.spark_sink.config import JOB_TABLE, ConfigError, parse_job
from tidemill.spark_sink.options import parse_options

LEAST = {"bootstrap.servers": "h:1", "topics": "a, b", "table.path": "/t"}


def test_defaults() -> None:
    job = parse_job(LEAST)
    assert (job.name, job.mode, job.master, job.topics) == ("warehouse", "upsert", "local[2]", ("a", "b"))
    assert (job.errors_tolerance, job.truncate_policy, job.topic_recreated) == ("none", "exact", "stop")
    assert job.isolation_level == "read_committed"
    assert not job.available_now


def test_families_of_settings_are_passed_on() -> None:
    given = {**LEAST, "spark.sql.shuffle.partitions": "3", "kafka.security.protocol": "SASL_SSL"}
    job = parse_job(given)
    assert job.spark == {"spark.sql.shuffle.partitions": "3"}
    options = parse_options(job.source_options('{"a": {"0": 5}}'), streaming=True)
    assert not options.is_plaintext
    assert options.read_committed
    assert options.starting.offsets == {"a": {0: 5}}


def test_both_spellings_of_the_cluster() -> None:
    given = {name: value for name, value in LEAST.items() if name != "bootstrap.servers"}
    assert parse_job({**given, "kafka.bootstrap.servers": "k:2"}).bootstrap == "k:2"


def test_every_setting_reaches_the_source() -> None:
    given = {
        **LEAST,
        "mode": "append",
        "key.columns": "x,y",
        "columns": "x:int32",
        "errors.tolerance": "all",
        "truncate.policy": "always",
        "group.id": "g",
        "max.offsets.per.trigger": "7",
        "min.partitions": "4",
        "unavailable.value.placeholder": "?",
    }
    options = parse_options(parse_job(given).source_options("earliest"), streaming=True)
    assert (options.keep, options.key_columns, options.columns, options.tolerate_errors) == (
        "all",
        ("x", "y"),
        "x:int32",
        True,
    )
    assert (options.group_id, options.max_offsets_per_trigger, options.min_partitions) == ("g", 7, 4)
    assert options.unavailable == "?"


def test_one_table_per_topic() -> None:
    job = parse_job({**LEAST, "table.path": "/w/{topic}/t"})
    assert (job.path_of("a"), job.path_of("b")) == ("/w/a/t", "/w/b/t")


def test_every_mistake_is_listed() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_job({"topics": "", "mode": "merge", "trigger.intervall.ms": "5"})
    text = " | ".join(caught.value.problems)
    for part in ("bootstrap.servers", "table.path", "merge", "did you mean 'trigger.interval.ms'"):
        assert part in text


def test_the_table_documents_every_setting() -> None:
    text = JOB_TABLE.markdown()
    assert all(f"`{key.name}`" in text and key.doc.endswith(".") for key in JOB_TABLE)
