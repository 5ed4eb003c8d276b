"""A chain from its configuration, and what is said of one that is wrong"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from tidemill.connect.api import NotConnected, Plugin, PluginKind, Record, Transform
from tidemill.connect.transforms import registry
from tidemill.connect.transforms.chain import Chain
from tidemill.connect.transforms.stages import make_chain, parts, problems, without_effect

K = "org.apache.kafka.connect.transforms."
ROUTE = {
    "transforms": "r",
    "transforms.r.type": "RegexRouter",
    "transforms.r.regex": "t",
    "transforms.r.replacement": "x",
}


def chain(config: dict[str, str]) -> Chain:
    assert not list(problems(config))
    made = make_chain(config, lambda data: (data, None), lambda data: (data, None))
    assert made is not None
    return made


def test_without_transforms_there_is_no_chain() -> None:
    for config in ({}, {"transforms": " , "}, {"predicates": "p", "predicates.p.type": "RecordIsTombstone"}):
        assert make_chain(config, lambda data: (data, None), lambda data: (data, None)) is None
        assert not list(problems(config))


def test_a_chain_is_made_in_the_order_of_its_aliases() -> None:
    config = {
        **ROUTE,
        "transforms": " h , r",
        "transforms.h.type": K + "HoistField$Value",
        "transforms.h.field": "v",
        "transforms.r.predicate": "p",
        "transforms.r.negate": "TRUE",
        "predicates": "p",
        "predicates.p.type": K + "predicates.RecordIsTombstone",
    }
    assert chain(config).apply([Record(topic="t", value=1)]) == [Record(topic="x", value={"v": 1})]
    del config["transforms.r.negate"]
    assert chain(config).apply([Record(topic="t", value=1)]) == [Record(topic="t", value={"v": 1})]


@pytest.mark.parametrize(
    ("changed", "setting", "text"),
    [
        (
            {"transforms": "r,r"},
            "transforms",
            "Invalid value [r, r] for configuration transforms: Duplicate alias provided.",
        ),
        (
            {"predicates": "p,p", "predicates.p.type": "RecordIsTombstone"},
            "predicates",
            "Invalid value [p, p] for configuration predicates: Duplicate alias provided.",
        ),
        (
            {"transforms.r.type": ""},
            "transforms.r.type",
            'Missing required configuration "transforms.r.type" which has no default value.',
        ),
        (
            {"transforms.r.type": "no.Such"},
            "transforms.r.type",
            "Invalid value no.Such for configuration transforms.r.type: Class no.Such could not be found. "
            "GET /connector-plugins?connectorsOnly=false lists what is there; what is installed is found at the start.",
        ),
        (
            {"transforms.r.type": "MaskField"},
            "transforms.r.type",
            "Invalid value MaskField for configuration transforms.r.type: Class MaskField could not be found. Take "
            "MaskField$Key or MaskField$Value.",
        ),
        (
            {"transforms.r.type": "HasHeaderKey"},
            "transforms.r.type",
            "Invalid value HasHeaderKey for configuration transforms.r.type: Class HasHeaderKey could not be found. "
            "GET /connector-plugins?connectorsOnly=false lists what is there; what is installed is found at the start.",
        ),
        (
            {"transforms.r.negate": "true"},
            "transforms.r.type",
            "Config 'transforms.r.negate' was provided but there is no config 'transforms.r.predicate' defining a "
            "predicate to be negated.",
        ),
        (
            {
                "transforms.r.predicate": "q",
                "transforms.r.negate": "maybe",
                "predicates": "q",
                "predicates.q.type": "RecordIsTombstone",
            },
            "transforms.r.negate",
            "Invalid value maybe for configuration transforms.r.negate: Expected value to be either true or false",
        ),
        (
            {"transforms.r.predicate": "q"},
            "transforms.r.predicate",
            "Invalid value q for configuration transforms.r.predicate: it is not among the aliases in 'predicates'",
        ),
        (
            {"transforms.r.plugin.version": "4.3.1"},
            "transforms.r.plugin.version",
            f"Version 4.3.1 of {K}RegexRouter is not installed: this worker has 1.0",
        ),
        (
            {"transforms.r.plugin.version": "[1.0"},
            "transforms.r.plugin.version",
            "'[1.0' is neither a version nor a range of versions: 1.2.3, [1.0,2.0), [1.0,), (,2.0] and latest are",
        ),
        (
            {"transforms.r.replacement": "$1"},
            "transforms.r.replacement",
            "Invalid value $1 for configuration transforms.r.replacement: the regular expression has no group 1",
        ),
        (
            {"transforms.r.type": "InsertHeader", "transforms.r.header": "h", "transforms.r.value.literal": "\ud800"},
            "transforms.r.type",
            f"{K}InsertHeader cannot be made: 'utf-8' codec can't encode character '\\ud800' in position 0: surrogates "
            "not allowed",
        ),
        (
            {"transforms.r.type": "MaskField$Key"},
            "transforms.r.fields",
            'Missing required configuration "transforms.r.fields" which has no default value.',
        ),
        (
            {
                "transforms.r.type": "InsertHeader",
                "transforms.r.header": "h",
                "transforms.r.value.literal": "x",
                "header.converter": "org.apache.kafka.connect.json.JsonConverter",
            },
            "header.converter",
            "'transforms.r.type' writes headers as text: remove 'header.converter'",
        ),
    ],
)
def test_what_is_wrong_is_told_in_connects_words(changed: dict[str, str], setting: str, text: str) -> None:
    assert list(problems({**ROUTE, **changed})) == [(setting, text)]


def test_what_nobody_reads_is_told() -> None:
    config = {
        **ROUTE,
        "transforms.r.regexp": "x",
        "transforms.r.plugin.version": "[1.0,2.0)",
        "transforms.other.type": "Filter",
        "predicates.p.type": "RecordIsTombstone",
    }
    assert [each.setting for each in without_effect(config)] == [
        "transforms.r.regexp",
        "transforms.other.type",
        "predicates.p.type",
    ]
    assert "RegexRouter knows regex, replacement" in next(iter(without_effect(config))).text


class Secrets(BaseModel):
    """A transform of others."""

    token: SecretStr = Field(alias="token", max_length=3)


def no_making(settings: Secrets) -> Transform:
    raise AssertionError("made in a task's process only")


def test_others_are_not_made_to_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Plugin(name="own", kind=PluginKind.TRANSFORMATION, version="1", config=Secrets, task=no_making)
    monkeypatch.setattr(registry, "installed_transforms", lambda: (own,))
    config = {"transforms": "o", "transforms.o.type": "own", "transforms.o.token": "abc"}
    assert [part.plugin for part in parts(config)] == [own] and not list(problems(config))
    [problem] = problems({**config, "transforms.o.token": "very secret"})
    assert problem.setting == "transforms.o.token" and "secret" not in problem.text and "[hidden]" in problem.text


class Held(Transform):
    """Something that has to be given back."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.closed, self.stubborn = 0, stubborn

    def apply(self, records: Sequence[Record]) -> Sequence[Record | None]:
        return records

    def close(self) -> None:
        self.closed += 1
        if self.stubborn:
            raise RuntimeError("will not close")


class Nothing(BaseModel):
    """No options."""


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_chain_that_cannot_be_made_gives_back_what_was(monkeypatch: pytest.MonkeyPatch, stubborn: bool) -> None:
    held: list[Held] = []

    def hold(settings: Nothing) -> Transform:
        held.append(Held(stubborn=stubborn))
        return held[-1]

    def fail(settings: Nothing) -> Transform:
        raise NotConnected("the table of rates is away")

    def plugin(name: str, kind: PluginKind, task: Callable[[Any], Any]) -> Plugin:
        return Plugin(name=name, kind=kind, version="1", config=Nothing, task=task)

    own = (
        plugin("hold", PluginKind.TRANSFORMATION, hold),
        plugin("fail", PluginKind.TRANSFORMATION, fail),
        plugin("unless", PluginKind.PREDICATE, fail),
    )
    monkeypatch.setattr(registry, "installed_transforms", lambda: own)
    config = {"transforms": "a,b", "transforms.a.type": "hold", "transforms.b.type": "fail"}
    conditional = {
        "transforms": "a,b",
        "transforms.a.type": "hold",
        "transforms.b.type": "hold",
        "transforms.b.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "unless",
    }
    for asked, count in ((config, 1), (conditional, 2)):
        held.clear()
        with pytest.raises(NotConnected, match="rates"):
            make_chain(asked, lambda data: (data, None), lambda data: (data, None))
        assert [each.closed for each in held] == [1] * count
