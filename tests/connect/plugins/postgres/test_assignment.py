"""What a life is told"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tidemill.connect.api import ConverterSpec, Fatal
from tidemill.connect.plugins.postgres.assignment import WAITING, Assignment, assign

CONFIG = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "t"}

Assigned = Callable[..., Assignment]


@pytest.mark.parametrize(
    "spec", [ConverterSpec(kind="string"), ConverterSpec(kind="json", options={"decimal.format": "NUMERIC"})]
)
@pytest.mark.parametrize("name", ["key", "value"])
def test_other_converters_are_refused(assigned: Assigned, name: str, spec: ConverterSpec) -> None:
    good = assigned(CONFIG)
    context = replace(good.context, **{f"{name}_converter": spec})
    with pytest.raises(Fatal, match=rf"{name}\.converter"):
        assign(good.config, context, good.clock)


def test_an_offset_alone_may_ask_to_be_stored_at_once(assigned: Assigned) -> None:
    batch = assigned(CONFIG).offset_only({"lsn": 5}, now=True)
    assert (batch.values, batch.offset, batch.offset_now) == ((), {"lsn": 5}, True)
    assert batch.partition == {"server": "t"}
    assert not assigned(CONFIG).offset_only({"lsn": 5}).offset_now


def test_what_is_waited_for_is_told_and_taken_back(assigned: Assigned) -> None:
    problems: dict[str, str | None] = {}
    assignment = assigned(CONFIG, problems)
    assignment.waiting("for rain")
    assert problems == {WAITING: "for rain"}
    assignment.waiting(None)
    assert problems == {WAITING: None}


def test_context_headers_are_there_on_request(assigned: Assigned) -> None:
    assert assigned(CONFIG).headers == ()
    headers = dict(assigned(CONFIG | {"extended.headers.enabled": "true"}).headers)
    assert headers["__debezium.context.connectorLogicalName"] == b"t"
