"""The settings that a plugin describes, held against a configuration"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from tidemill.connect.api import InvalidConfig
from tidemill.connect.plugins.process import record_protocol_pb2 as pb

HIDDEN = "[hidden]"


def _number(pattern: str) -> Callable[[str], None]:
    """A reader of what is a number in every language: Python takes 1_000, digits of other scripts and nan for one."""
    written = re.compile(pattern)

    def read(text: str) -> None:
        if written.fullmatch(text) is None:
            raise ValueError

    return read


def _boolean(text: str) -> None:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError


_READERS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "int": ("a whole number", _number(r"[+-]?[0-9]+")),
    "double": ("a number", _number(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")),
    "boolean": ("true or false", _boolean),
}


def with_defaults(settings: Sequence[pb.Setting], config: Mapping[str, str]) -> dict[str, str]:
    """The configuration, with the default of every setting that is missing in it."""
    defaults = {each.name: each.default for each in settings if each.HasField("default")}
    return {**defaults, **config}


def refusals(settings: Sequence[pb.Setting], config: Mapping[str, str]) -> Iterator[InvalidConfig]:
    """What is missing, and what is not of its type."""
    for setting in settings:
        value = config.get(setting.name)
        if value is None:
            if setting.required:
                doc = f" {setting.documentation}" if setting.documentation else ""
                yield InvalidConfig(setting.name, f"The plugin needs {setting.name}.{doc}")
            continue
        meaning, read = _READERS.get(setting.type, ("", str))
        try:
            read(value)
        except ValueError:
            yield InvalidConfig(setting.name, f"{setting.name} is {meaning}, not {value!r}.")
