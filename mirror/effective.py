"""Settings as they take effect: file, defaults and precedence put together

For each cluster and each enabled flow every setting that is honoured, with its value and where that came from, in the
grammar of the file itself, so that what is printed could be used as a file.

Pure: `tidemill mirror config` prints it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidemill.core.config import ConfigTable
from tidemill.mirror.config import ARROW, CONSUMER_TABLE, FLOW_TABLE, parse_mirror_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One line: the full key, its value as text, and the key it was given with (None: it is the default)."""

    name: str
    value: str
    given_as: str | None


def effective_settings(raw: Mapping[str, str]) -> tuple[Setting, ...]:
    """Every setting of `raw` (the text of a file by key) that takes effect; raises ConfigError as a start would."""
    config = parse_mirror_config(raw)
    found = [Setting(name="clusters", value=", ".join(config.clusters), given_as="clusters")]
    for alias in config.clusters:
        name = f"{alias}.bootstrap.servers"
        found.append(Setting(name=name, value=raw[name], given_as=name))
        found.extend(_rows(CONSUMER_TABLE, f"{alias}.consumer.", raw))
    for flow in config.enabled_flows():
        found.extend(_rows(FLOW_TABLE, f"{flow.source}{ARROW}{flow.target}.", raw, bare=True))
    return tuple(found)


def _rows(table: ConfigTable, prefix: str, raw: Mapping[str, str], *, bare: bool = False) -> Iterator[Setting]:
    for key in table:
        names = (prefix + key.name, key.name) if bare else (prefix + key.name,)
        given_as = next((name for name in names if name in raw), None)
        value = key.parse(None if given_as is None else raw[given_as])
        yield Setting(name=prefix + key.name, value=_text(value), given_as=given_as)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)
