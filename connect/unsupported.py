"""What a configuration asks for that this worker cannot do

To do without in silence would corrupt data or hand a reference to a secret out as the secret. Every configuration
passes through here: when it is sent to the REST API, and again before its tasks are made and started, because the
config topic may hold connectors that another worker took in.
"""

from collections.abc import Iterator, Mapping

from tidemill.connect.api import Fatal, Plugin
from tidemill.connect.client_settings import with_prefix
from tidemill.connect.config import CONVERTERS, header_notes
from tidemill.connect.converters.registry import OPTIONS
from tidemill.connect.references import Problem, references
from tidemill.connect.transforms import stages
from tidemill.connect.versions import LATEST

HEADER_CONVERTERS = {"org.apache.kafka.connect.storage.SimpleHeaderConverter", "SimpleHeaderConverter", *CONVERTERS}

ROLES = ("key", "value")

VERSION = "plugin.version"
"""Behind `key.converter.`: which version of a converter is meant."""


class CannotRun(Fatal):
    """A configuration that cannot be run as it is; one line per problem."""


def not_built(config: Mapping[str, str]) -> Iterator[Problem]:
    """Settings of a connector that ask for something that does not exist here."""
    yield from references(config)
    yield from stages.problems(config)
    if config.get("exactly.once.support", "").strip().lower() == "required":
        yield Problem("exactly.once.support", "Exactly-once sources are not supported yet: use 'requested'.")
    if config.get("transaction.boundary", "poll").strip().lower() == "connector":
        yield Problem("transaction.boundary", "Connector-defined transactions are not supported yet: use 'poll'.")
    if config.get("offsets.storage.topic", "").strip():
        text = "An offsets topic of its own is not supported yet: remove the setting."
        yield Problem("offsets.storage.topic", text)
    for name in (f"{role}.converter.{VERSION}" for role in (*ROLES, "header")):
        version = config.get(name, "").strip()
        if version not in ("", LATEST):
            yield Problem(name, f"{name}={version} is not supported: converters are part of the worker; remove it.")
    header = config.get("header.converter", "").strip()
    if header and header not in HEADER_CONVERTERS:
        text = f"Invalid value {header} for configuration header.converter: Class {header} could not be found."
        yield Problem("header.converter", text)


def refuse_unsupported(plugin: Plugin, config: Mapping[str, str]) -> None:
    """Raise CannotRun for a configuration that must not be run."""
    problems = [problem.text for problem in not_built(config)]
    problems += [text for _, text in plugin.refusals(config)]
    if problems:
        raise CannotRun("\n".join(problems))


def without_effect(config: Mapping[str, str], kinds: Mapping[str, str]) -> Iterator[Problem]:
    """Options that no converter in use has; `kinds` says which converter a role (key, value) has. Headers use none.

    A role that is not among them takes the worker's converter, and with it the worker's options.
    """
    for name, text in header_notes(config):
        yield Problem(name, f"'{name}' {text}")
    for role in (each for each in ROLES if each not in kinds):
        for option in (each for each in with_prefix(config, f"{role}.converter.") if each != VERSION):
            name = f"{role}.converter.{option}"
            text = f"'{name}' has no effect without '{role}.converter': the worker's converter has the worker's options"
            yield Problem(name, text)
    for role, kind in kinds.items():
        prefix = f"{role}.converter."
        for option in with_prefix(config, prefix):
            if option not in (*OPTIONS[kind], VERSION):
                known = ", ".join(f"{prefix}{each}" for each in sorted(OPTIONS[kind] - {"converter.type"}))
                text = f"'{prefix}{option}' has no effect: the {kind} converter knows {known or 'no options'}"
                yield Problem(prefix + option, text)
