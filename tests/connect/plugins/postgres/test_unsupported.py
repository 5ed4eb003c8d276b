"""Every setting of Debezium's connector is honoured, refused or known to have no effect"""

from pathlib import Path

import pytest

from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.source import postgres_source
from tidemill.connect.plugins.postgres.unsupported import IGNORED, UNSUPPORTED

SETTINGS = (Path(__file__).parent / "debezium_settings.txt").read_text(encoding="utf-8").split()
KNOWN = {field.alias or "" for field in PostgresConfig.model_fields.values()}
REFUSED = {each.name for each in UNSUPPORTED}


def listed(name: str, names: set[str]) -> bool:
    return name in names or any(each.endswith(".") and name.startswith(each) for each in names)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_in_exactly_one_list(name: str) -> None:
    assert [listed(name, names) for names in (KNOWN, REFUSED, set(IGNORED))].count(True) == 1


def test_no_list_takes_from_another() -> None:
    for name in KNOWN:
        assert not listed(name, REFUSED) and not listed(name, set(IGNORED))
    for name in IGNORED:
        assert not listed(name, REFUSED)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("column.mask.with.5.chars", "public.users.ssn", "unmasked"),
        ("column.truncate.to.3.chars", "public.users.ssn", "in full"),
        ("topic.naming.strategy", "com.acme.Names", "remove the setting"),
        ("converters", "isbn", "Java"),
        ("schema.name.adjustment.mode", "avro", "but for schema.name.adjustment.mode=none"),
        ("signal.data.collection", "public.signals", "signals are not read"),
        ("snapshot.select.statement.overrides.public.a", "SELECT 1", "all rows"),
        ("driver.socketTimeout", "5", "libpq"),
        ("event.processing.failure.handling.mode", "skip", "stops the task"),
        ("flush.lsn.source", "false", "kept for ever"),
    ],
)
def test_what_would_be_wrong_to_ignore_is_refused(name: str, value: str, words: str) -> None:
    [(setting, problem)] = postgres_source.refusals({"topic.prefix": "t", name: value})
    assert setting == name
    assert problem.startswith(f"{name} is not supported")
    assert words in problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema.name.adjustment.mode", "none"),
        ("topic.naming.strategy", "io.debezium.schema.SchemaTopicNamingStrategy"),
        ("include.unknown.datatypes", "False"),
        ("converters", ""),
        ("max.queue.size", "8192"),
        ("snapshot.locking.mode", "shared"),
    ],
)
def test_values_that_ask_for_what_happens_anyway_pass(name: str, value: str) -> None:
    assert list(postgres_source.refusals({name: value})) == []
