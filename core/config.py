"""Configuration tables: one row per key, everything else derived

A component describes its settings once, as a `ConfigTable` of `ConfigKey` rows (name, type, default, validator,
importance, documentation). Parsing, validation messages, `--help`, the reference page in `docs/` and the answers of
DescribeConfigs and of Connect's validate endpoint all come from that table, so they cannot disagree.

Names are those of the field: Kafka's, Connect's, MirrorMaker 2's. Their `.properties` files are read as they are,
TOML beside them; an unknown key is an error that names the nearest known one.
"""

import difflib
import enum
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None
"""A parsed setting; LIST becomes a tuple of strings."""


class ConfigType(enum.StrEnum):
    """Kafka's ConfigDef types, spelled as its REST API spells them."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


class Importance(enum.StrEnum):
    """How soon a reader of the reference page needs to know the key."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class _Required(enum.Enum):
    REQUIRED = enum.auto()


REQUIRED: Final = _Required.REQUIRED
"""Default of a key that must be given."""

Validator: TypeAlias = Callable[[Value], str | None]
"""Returns what is wrong with a parsed value, or None."""

SECRET_PARTS = ("password", "secret", "jaas", "credential", "keystore.key", "key.pem")
"""A key that no table knows holds a secret if its name has one of these in it."""

_BOUNDS = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), 2**31 - 1),
    ConfigType.LONG: (-(2**63), 2**63 - 1),
}


class ConfigError(ValueError):
    """Settings that cannot be used; `problems` has one sentence per mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One setting."""

    name: str
    type: ConfigType
    default: Value | _Required
    doc: str
    importance: Importance = Importance.MEDIUM
    valid: Validator | None = None
    dynamic: bool = False  # may change while running

    def parse(self, raw: str | None) -> Value:
        """Turn the text of a file or request into a value; raises ConfigError with one problem."""
        if raw is None:
            if self.default is REQUIRED:
                raise ConfigError([f"Missing required configuration {self.name!r}: {self.doc}"])
            return self.default
        value = self._convert(raw.strip())
        problem = self.valid(value) if self.valid else None
        if problem:
            raise ConfigError([f"Invalid value {raw!r} for configuration {self.name}: {problem}"])
        return value

    def _convert(self, text: str) -> Value:
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() in ("true", "false"):
                    return text.lower() == "true"
                raise ConfigError([f"Invalid value {text!r} for configuration {self.name}: expected true or false"])
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                return self._integer(text)
            case ConfigType.DOUBLE:
                try:
                    number = float(text)
                except ValueError:
                    number = math.nan
                if math.isfinite(number):  # nan would pass every comparison with a limit
                    return number
                raise ConfigError([f"Invalid value {text!r} for configuration {self.name}: not a number"])
            case ConfigType.LIST:
                return tuple(part.strip() for part in text.split(",") if part.strip())
            case _:
                return text

    def _integer(self, text: str) -> int:
        low, high = _BOUNDS[self.type]
        try:
            number = int(text.replace("_", "x"))  # Python's 1_000 is no number to anybody else
        except ValueError:
            raise ConfigError(
                [f"Invalid value {text!r} for configuration {self.name}: Not a number of type {self.type}"]
            ) from None
        if not low <= number <= high:
            raise ConfigError([f"Invalid value {text!r} for configuration {self.name}: outside {low}..{high}"])
        return number


class ConfigTable:
    """All settings of a component, in the order in which they are documented."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self._keys = {key.name: key for key in keys}

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def names(self) -> tuple[str, ...]:
        """Every key name, in documented order."""
        return tuple(self._keys)

    def parse(self, raw: Mapping[str, str], *, ignore_unknown: bool = False) -> dict[str, Value]:
        """Parse and validate `raw` with defaults filled in; raises one ConfigError that lists every problem."""
        problems = [] if ignore_unknown else [self.unknown(name) for name in raw if name not in self._keys]
        values: dict[str, Value] = {}
        for key in self._keys.values():
            try:
                values[key.name] = key.parse(raw.get(key.name))
            except ConfigError as error:
                problems.extend(error.problems)
        if problems:
            raise ConfigError(problems)
        return values

    def unknown(self, name: str) -> str:
        """The sentence for a key that is not in the table, with the nearest one that is."""
        near = nearest(name, self._keys)
        return f"Unknown configuration {name!r}" + ("" if near is None else f": did you mean {near!r}?")

    def properties(self, raw: Mapping[str, str], defaults: Mapping[str, Value] = MappingProxyType({})) -> str:
        """Every setting as it takes effect, as a .properties file: those given first, then the defaults.

        `defaults` are those that follow from what else is given, and not the table's. What is given and not in the
        table, such as settings passed on to clients, is shown as it is; secrets are not. Raises ConfigError as `parse`
        does.
        """
        values = self.parse(raw, ignore_unknown=True)
        values |= {name: value for name, value in defaults.items() if name not in raw}
        given = [f"{name}={_shown(name, self._keys.get(name), values.get(name, text))}" for name, text in raw.items()]
        rest = [f"{name}={_shown(name, key, values[name])}" for name, key in self._keys.items() if name not in raw]
        return "\n".join(["# given", *given, "", "# defaults", *rest])

    def markdown(self) -> str:
        """The reference table for the docs."""
        rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
        for key in self._keys.values():
            default = "*required*" if key.default is REQUIRED else f"`{_text(key.default)}`"
            rows.append(f"| `{key.name}` | {key.type.lower()} | {default} | {key.doc} |")
        return "\n".join(rows)


def _shown(name: str, key: ConfigKey | None, value: Value) -> str:
    secret = key.type is ConfigType.PASSWORD if key else any(part in name for part in SECRET_PARTS)
    return "********" if value and secret else _text(value)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known key that `name` was most likely meant to be; None if none of them looks like it.

    A slip of a finger, another spelling of the dots, or the last words of a long key count; that two long names have
    letters in common does not.

    >>> keys = ["group.id", "database.hostname", "metric.names.formats"]
    >>> nearest("grup.id", keys), nearest("DATABASE_HOSTNAME", keys), nearest("hostname", keys)
    ('group.id', 'database.hostname', 'database.hostname')
    >>> nearest("transforms", keys) is None
    True
    """
    plain = {_plain(key): key for key in known}
    wanted = _plain(name)
    close = difflib.get_close_matches(wanted, plain, n=1, cutoff=0.8)
    if close:
        return plain[close[0]]
    endings = [key for short, key in plain.items() if short.endswith(f".{wanted}")]
    return endings[0] if len(endings) == 1 else None


def _plain(name: str) -> str:
    return name.lower().replace("_", ".").replace("-", ".")


def _text(value: Value | _Required) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


def in_range(low: float | None = None, high: float | None = None) -> Validator:
    """Accept numbers in `low..high`, both inclusive; None leaves that side open."""

    def check(value: Value) -> str | None:
        if not isinstance(value, int | float):
            return "not a number"
        if low is not None and value < low:
            return f"Value must be at least {low}"
        if high is not None and value > high:
            return f"Value must be no more than {high}"
        return None

    return check


def one_of(*choices: str) -> Validator:
    """Accept the named strings only; for a LIST every element has to be one of them."""

    def check(value: Value) -> str | None:
        given = value if isinstance(value, tuple) else (value,)
        wrong = [str(item) for item in given if item not in choices]
        return f"{', '.join(wrong)} is not one of {', '.join(choices)}" if wrong else None

    return check


def parse_address(text: str) -> tuple[str, int]:
    """Split `host:port`, `[v6]:port` or `:port`; raises ConfigError.

    >>> parse_address("[::1]:9404"), parse_address(":0")
    (('::1', 9404), ('', 0))
    """
    host, sign, port = text.rpartition(":")
    if not sign or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise ConfigError([f"Expected HOST:PORT, got {text!r}"])
    return host.strip("[]"), int(port)


def address_or_empty(value: Value) -> str | None:
    """Accept HOST:PORT, and the empty string for none."""
    try:
        if value:
            parse_address(str(value))
    except ConfigError:
        return "expected HOST:PORT"
    return None


def not_empty(value: Value) -> str | None:
    """Accept anything but the empty string and the empty list."""
    return "must not be empty" if value in ("", (), None) else None


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        if code.startswith("u") and len(code) == 5:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", replace, text, flags=re.DOTALL)


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for line in text.splitlines():
        stripped = line.lstrip(" \t\f")
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        pending += stripped
        trailing = len(pending) - len(pending.rstrip("\\"))
        if trailing % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def parse_properties(text: str) -> dict[str, str]:
    """Read the Java `.properties` grammar: `key=value`, `key: value`, comments, escapes, continued lines.

    >>> parse_properties("clusters = A, B\\nA->B.enabled: true")
    {'clusters': 'A, B', 'A->B.enabled': 'true'}
    """
    result: dict[str, str] = {}
    for line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^=:\s\\])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, flags=re.DOTALL)
        if match is None:  # the pattern accepts every line; kept so that a change to it cannot pass silently
            raise ConfigError([f"Unreadable line {line!r}"])
        result[_unescape(match.group(1))] = _unescape(match.group(2))
    return result


def parse_toml(text: str) -> dict[str, str]:
    """Read TOML whose nested tables become dotted keys and whose lists become comma-separated values."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"Not valid TOML: {error}"]) from None
    flat: dict[str, str] = {}

    def walk(prefix: str, node: Mapping[str, object]) -> None:
        for name, value in node.items():
            if isinstance(value, Mapping):
                walk(f"{prefix}{name}.", value)
            elif isinstance(value, list):
                flat[prefix + name] = ",".join(str(item) for item in value)
            else:
                flat[prefix + name] = str(value).lower() if isinstance(value, bool) else str(value)

    walk("", tree)
    return flat


def parse_config_text(text: str, file_name: str) -> dict[str, str]:
    """Read the text of a configuration file by its ending: `.toml`, else `.properties`."""
    return parse_toml(text) if file_name.endswith(".toml") else parse_properties(text)


def parse_assignments(pairs: Iterable[str]) -> dict[str, str]:
    """Read `--set key=value` options; raises ConfigError for one without `=`."""
    result: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise ConfigError([f"Expected key=value, got {pair!r}"])
        result[name.strip()] = value.strip()
    return result
