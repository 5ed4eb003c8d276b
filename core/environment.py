"""Where a process finds its settings: file, environment, arguments

One rule for every process, so that a container needs no file. `PREFIX_LOG_RETENTION_MS` is `log.retention.ms`: a name
in upper case, with an underscore for every character but letters and digits, as in `PREFIX_EAST__WEST_TOPICS` for
`east->west.topics`. Variables are compared with the names that a process knows and never guessed at, so each is one
setting or is refused: an unknown one with the nearest that is known, one that two settings could mean with both.

Names that no process can know (`spark.…`, `producer.…`) go into `PREFIX_PROPERTIES`, the text of a whole .properties
file. `PREFIX_…_FILE` is a file that holds the value, as Docker and Kubernetes hand over secrets.

An argument wins over a variable, that over `PREFIX_PROPERTIES`, that over the file, that over the default. Variables
that Kubernetes puts into a container for a service of our name are no settings and are passed over.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from tidemill.core.config import ConfigError, nearest, parse_assignments, parse_config_text, parse_properties

WHOLE: Final = "PROPERTIES"
"""Ending of the variable that holds the text of a .properties file."""

FROM_FILE: Final = "_FILE"
"""Ending of a variable that names the file with the value."""

SECRET_BYTES_MAX: Final = 1 << 20
"""Most bytes of such a file: what Docker and Kubernetes allow a secret."""

_SERVICE = re.compile(r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://\S+")

Known = Callable[[Mapping[str, str]], Iterable[str]]
"""The names a process knows, given the settings found so far: those of a flow depend on which clusters there are."""


def variable_of(name: str) -> str:
    """How a setting's name is written behind the prefix.

    >>> variable_of("log.retention.ms"), variable_of("east->west.offset-syncs.topic.location")
    ('LOG_RETENTION_MS', 'EAST__WEST_OFFSET_SYNCS_TOPIC_LOCATION')
    """
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def gather(
    file: Path | None,
    environ: Mapping[str, str],
    prefix: str,
    known: Known,
    assignments: Iterable[str] = (),
    *,
    not_settings: Iterable[str] = (),
) -> dict[str, str]:
    """All settings given, the strongest winning; raises ConfigError with every problem.

    `prefix` ends with an underscore; `assignments` are `key=value` arguments; `not_settings` are endings of variables
    that begin with the prefix and belong to somebody else.
    """
    raw = {} if file is None else _read_settings(file)
    given = {name.removeprefix(prefix): value for name, value in environ.items() if name.startswith(prefix)}
    for name in not_settings:
        given.pop(name, None)
    variables = _Variables(given, prefix)
    raw |= variables.whole()
    argued = parse_assignments(assignments)
    chosen = variables.settings(known(raw | argued))
    chosen = variables.settings(known(raw | chosen | argued))  # now with what the first look has told
    variables.refuse_problems()
    return raw | chosen | argued


def origin(file: Path | None, environ: Mapping[str, str], prefix: str) -> str:
    """Where settings were looked for, as messages name it."""
    variables = f"{prefix}*" if any(name.startswith(prefix) for name in environ) else ""
    return " and ".join(filter(None, (str(file or ""), variables))) or "no settings given"


def _read_settings(file: Path) -> dict[str, str]:
    text = _read(file)
    try:
        return parse_config_text(text, file.name)
    except ConfigError as error:
        raise ConfigError([f"{file}: {problem}" for problem in error.problems]) from None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark that nobody sees
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError([f"cannot read {file}: {reason}"]) from None


class _Variables:
    """The variables of one process; problems are kept until all are known."""

    def __init__(self, given: Mapping[str, str], prefix: str) -> None:
        self._given = given
        self._prefix = prefix
        self._problems: list[str] = []

    def whole(self) -> dict[str, str]:
        """The settings of the variable that holds a whole file."""
        if WHOLE in self._given and WHOLE + FROM_FILE in self._given:
            raise ConfigError([self._twice(WHOLE)])
        if WHOLE + FROM_FILE in self._given:
            return parse_properties(self._secret(WHOLE + FROM_FILE))
        return parse_properties(self._given.get(WHOLE, ""))

    def settings(self, known: Iterable[str]) -> dict[str, str]:
        """The settings that have a variable of their own."""
        self._problems.clear()
        spelled: dict[str, set[str]] = {}
        for name in known:
            spelled.setdefault(variable_of(name), set()).add(name)
        found: dict[str, str] = {}
        for variable in sorted(self._given):
            if variable in (WHOLE, WHOLE + FROM_FILE):
                continue
            try:
                self._take(variable, spelled, found)
            except ConfigError as error:
                self._problems.extend(error.problems)
        return found

    def refuse_problems(self) -> None:
        """Raise ConfigError if the last look found any."""
        if self._problems:
            raise ConfigError(self._problems)

    def _take(self, variable: str, spelled: Mapping[str, set[str]], found: dict[str, str]) -> None:
        plain = variable.removesuffix(FROM_FILE)
        from_file = variable not in spelled and plain in spelled and plain != variable
        names = spelled.get(plain if from_file else variable)
        if names is None:
            if not self._of_a_service(variable):
                raise ConfigError([self._unknown(variable, spelled)])
            return
        if len(names) > 1:
            meant = " or ".join(sorted(names))
            raise ConfigError([f"{self._prefix}{variable} could mean {meant}: write it into {self._prefix}{WHOLE}"])
        if from_file and plain in self._given:
            raise ConfigError([self._twice(plain)])
        found[next(iter(names))] = self._secret(variable) if from_file else self._given[variable]

    def _secret(self, variable: str) -> str:
        file = self._given[variable]
        try:
            if Path(file).stat().st_size > SECRET_BYTES_MAX:
                raise ConfigError([f"{file} has more than {SECRET_BYTES_MAX} bytes"])
            return _read(Path(file)).rstrip("\r\n")
        except OSError as error:
            reason = f"cannot read {file!r}: {error.strerror}; mount the secret there or correct the path"
            raise ConfigError([f"{self._prefix}{variable}: {reason}"]) from None
        except ConfigError as error:
            raise ConfigError([f"{self._prefix}{variable}: {problem}" for problem in error.problems]) from None

    def _of_a_service(self, variable: str) -> bool:
        if _SERVICE.fullmatch(variable):
            return True
        last = variable.rpartition("_")[2]
        return last == "PORT" and _SERVICE_URL.fullmatch(self._given[variable]) is not None

    def _unknown(self, variable: str, spelled: Iterable[str]) -> str:
        near = nearest(variable, spelled)
        hint = (
            f"did you mean {self._prefix}{near}?"
            if near is not None
            else f"a setting without a variable of its own is a line of {self._prefix}{WHOLE}"
        )
        return f"Unknown variable {self._prefix}{variable}: {hint}"

    def _twice(self, variable: str) -> str:
        return f"{self._prefix}{variable} and {self._prefix}{variable}{FROM_FILE} are both set: remove one"
