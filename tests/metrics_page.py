"""docs/metrics.md as a table of promises, and a scrape held against it

A section of the page lists what one process exports, a row each: name as queries have it (a counter with its `_total`),
type, labels. `differences` compares both ways: what is exported and not listed, and what is listed and not exported.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
_ROW = re.compile(
    r"^\| `(?P<name>[a-z_0-9]+)` \| (?P<type>\w+) \|(?P<labels>[^|]*)\| (?P<unit>[^|]+) \| (?P<doc>.+) \|$"
)
_LABEL = re.compile(r"`(\w+)`")
_OWN_LABELS = {"histogram": {"le"}, "summary": {"quantile"}}
"""Labels that a type brings along."""

SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
"""Of the names under which a type's samples are queried; any other type has one sample, named as listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One row of the page, or one family of a scrape."""

    name: str
    type: str
    labels: frozenset[str]


def sections() -> list[str]:
    """The headings that list metrics, in order."""
    return [heading for heading, body in _sections() if any(_ROW.match(line) for line in body)]


def listed(section: str) -> dict[str, Listed]:
    """What a section promises, by name."""
    (body,) = [body for heading, body in _sections() if heading == section]
    rows = [match for line in body if (match := _ROW.match(line))]
    names = [row["name"] for row in rows]
    assert rows and len(set(names)) == len(names), f"{PAGE}: {section}: no rows, or one twice"
    return {
        row["name"]: Listed(name=row["name"], type=row["type"], labels=frozenset(_LABEL.findall(row["labels"])))
        for row in rows
    }


def _sections() -> Iterator[tuple[str, list[str]]]:
    _, *parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for part in parts:
        heading, _, body = part.partition("\n")
        yield heading.strip(), body.splitlines()


def scraped(text: str) -> tuple[dict[str, Listed], set[str]]:
    """The families of a scrape by name, and the names of those that have no sample."""
    found: dict[str, Listed] = {}
    empty: set[str] = set()
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name not in found, f"{name} is there twice"
        given = {frozenset(sample.labels) - _OWN_LABELS.get(family.type, set()) for sample in family.samples}
        assert len(given) <= 1, f"{name} has samples with labels {sorted(map(sorted, given))}"
        if not given:
            empty.add(name)
        found[name] = Listed(name=name, type=family.type, labels=next(iter(given), frozenset()))
    return found, empty


def differences(
    sections: str | Iterable[str], text: str, may_be_empty: Collection[str] = (), absent: Collection[str] = ()
) -> list[str]:
    """How a scrape and some sections differ.

    `may_be_empty` are families that need not have a sample here; `absent` are rows that this scrape cannot have.
    """
    wanted = [sections] if isinstance(sections, str) else sections
    promised = {name: row for section in wanted for name, row in listed(section).items()}
    found, empty = scraped(text)
    problems = [f"{name} is exported and not listed" for name in sorted(found.keys() - promised.keys())]
    problems += [f"{name} is listed and not exported" for name in sorted(promised.keys() - found.keys() - set(absent))]
    for name in sorted(promised.keys() & found.keys()):
        if name in empty:
            problems += [] if name in may_be_empty else [f"{name} has no sample"]
        elif found[name].labels != promised[name].labels:
            problems.append(f"{name} has labels {sorted(found[name].labels)}, listed {sorted(promised[name].labels)}")
        if found[name].type != promised[name].type:
            problems.append(f"{name} is a {found[name].type}, listed as {promised[name].type}")
    return problems
