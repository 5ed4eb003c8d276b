"""A new plugin's project: its module, its test and what installs it

The module is a dozen lines that already work: a source that counts, a sink that appends lines to a file, a transform
that writes text in capitals. What they do is there to be replaced; what stays is where settings, positions and tests
have their place. The files are made here as text, so that the command only has to write them.

One name makes all others: `web-orders` is the folder and the package, `web_orders` the module and the function,
`WebOrders` what a configuration calls the plugin.
"""

import builtins
import importlib.util
import keyword
import re
import sys
from string import Template

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
NAME_CHARACTERS_MAX = 60  # it becomes file names and, with endings, topics; those end at 249

TAKEN = frozenset(
    {"batch", "conftest", "flush", "offset", "opened", "pos", "record", "replace", "settings", "setup", "sink"}
)
TAKEN |= {"check", "source", "task_split", "transform", "written"}
TAKEN |= {"conformance", "feed_sink", "file", "line", "run", "run_source", "stored", "tmp_path"}
"""Names that the module or its test needs itself."""


class BadName(ValueError):
    """The name cannot be a project's; the message says what is wrong and what to do."""


def files_of(kind: str, name: str) -> dict[str, str]:
    """The content of every file of a project, by file name; `kind` is source, sink or transform. Raises BadName."""
    module = _module_of(name)
    words = {
        "name": name,
        "module": module,
        "plugin": "".join(word.capitalize() for word in name.split("-")),
        "kind": kind,
        "group": "transforms" if kind == "transform" else "plugins",
        "see": _SEE[kind],
    }
    found = {
        "pyproject.toml": _PYPROJECT,
        f"{module}.py": _MODULES[kind],
        f"test_{module}.py": _TESTS[kind],
        f"{name}.json": _CONNECTORS[kind],
        "README.md": _README,
    }
    filled = {file: Template(text).substitute(words) for file, text in found.items()}
    return {file: Template(text).substitute(words) for file, text in filled.items()}  # `see` has names in it


def _module_of(name: str) -> str:
    if not NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        raise BadName(
            f"{name!r} cannot be a project's name: take small letters and digits, words joined by '-', such as "
            f"web-orders, at most {NAME_CHARACTERS_MAX} characters"
        )
    module = name.replace("-", "_")
    if keyword.iskeyword(module) or keyword.issoftkeyword(module) or module in dir(builtins):
        raise BadName(f"{name!r} cannot be a module's name, it is a word of Python: take a longer one")
    if module in TAKEN or module.startswith("test_"):
        raise BadName(f"{name!r} would hide a name that its module, its test or pytest needs: take a longer one")
    if module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None:
        raise BadName(f"{name!r} would hide the Python module {module!r} that is installed here: take another name")
    return module


_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["tidemill"]

# How a worker finds it: the name on the left is free, the object on the right is the plugin.
[project.entry-points."tidemill.$group"]
$name = "$module:$module"

[tool.hatch.build]
dev-mode-dirs = ["."]

[tool.hatch.build.targets.wheel]
only-include = ["$module.py"]
"""

_SOURCE = '''\
"""The source $plugin."""

import time
from collections.abc import Iterator

from pydantic import BaseModel, Field

from tidemill import Pos, Record, source


class Settings(BaseModel):
    """What a connector's configuration may say."""

    topic: str = Field(min_length=1, description="Topic to write to")
    interval_s: float = Field(default=1.0, ge=0, alias="interval.seconds", description="Time between two records")


@source("$plugin", version="0.1.0")
def $module(settings: Settings, pos: Pos) -> Iterator[Record]:
    """Counts on from where it was."""
    here = pos.source_partition(counter=settings.topic)
    number = here.get("number", 0)
    while True:
        number += 1
        yield here.record(topic=settings.topic, value={"number": number}, offset={"number": number})
        time.sleep(settings.interval_s)
'''

_SINK = '''\
"""The sink $plugin."""

import json
import os
from collections.abc import Iterator
from typing import TextIO

from pydantic import BaseModel, Field

from tidemill import Record, flush, sink


class Settings(BaseModel):
    """What a connector's configuration may say."""

    file: str = Field(min_length=1, description="File to append to")


def opened(settings: Settings) -> Iterator[TextIO]:
    """Opens the file once for each task; what follows the yield runs when the task ends."""
    file = open(settings.file, "a", encoding="utf-8", buffering=1)  # a line at a time: others see it at once
    yield file
    file.close()


@sink("$plugin", version="0.1.0", setup=opened)
def $module(file: TextIO, batch: list[Record]) -> None:
    """Appends a line of JSON per record."""
    for record in batch:
        file.write(json.dumps({"key": record.key, "value": record.value}) + "\\n")


@flush($module)
def written(file: TextIO) -> None:
    """Has everything on disk before the consumer's offsets are committed."""
    os.fsync(file.fileno())
'''

_TRANSFORM = '''\
"""The transform $plugin."""

from dataclasses import replace

from pydantic import BaseModel, Field

from tidemill import Record, transform


class Settings(BaseModel):
    """What a connector's configuration may say."""

    suffix: str = Field(default="", description="Text to put behind every value")


@transform("$plugin", version="0.1.0", uses=["value"])
def $module(settings: Settings, record: Record) -> Record | None:
    """Writes text in capitals; a record without a value is left out."""
    if record.value is None:
        return None
    return replace(record, value=str(record.value).upper() + settings.suffix)
'''

_SOURCE_TEST = '''\
"""The source, tested without a broker."""

from $module import $module
from tidemill.testing import conformance, run_source

CONFIG = {"topic": "numbers", "interval.seconds": "0"}


def test_it_counts() -> None:
    assert run_source($module, CONFIG, count=3).values[:3] == [{"number": 1}, {"number": 2}, {"number": 3}]


def test_it_goes_on_where_it_was() -> None:
    stored = [({"counter": "numbers"}, {"number": 41})]
    assert run_source($module, CONFIG, offsets=stored, count=1).values[0] == {"number": 42}


def test_it_does_what_every_source_must() -> None:
    conformance.check_source($module, CONFIG, count=5, wrong={"interval.seconds": "-1"})
'''

_SINK_TEST = '''\
"""The sink, tested without a broker."""

import json
from pathlib import Path

from $module import $module
from tidemill import Record
from tidemill.testing import conformance, feed_sink


def test_a_line_for_each_record(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    run = feed_sink($module, {"file": str(file)}, [Record(key="a", value=1)], [Record(key="b", value=2)])
    assert run.refused == {}
    assert file.read_text().splitlines() == ['{"key": "a", "value": 1}', '{"key": "b", "value": 2}']


def test_it_does_what_every_sink_must(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.touch()
    conformance.check_sink(
        $module,
        {"file": str(file)},
        [Record(key="a", value=1), Record(key="b", value=2)],
        read=lambda: [json.loads(line)["value"] for line in file.read_text().splitlines()],
    )
'''

_TRANSFORM_TEST = '''\
"""The transform, tested by calling it."""

from $module import Settings, $module
from tidemill import Record


def test_text_is_in_capitals() -> None:
    assert $module(Settings(suffix="!"), Record(value="hello")) == Record(value="HELLO!")


def test_a_record_without_a_value_is_left_out() -> None:
    assert $module(Settings(), Record(value=None)) is None
'''

_SOURCE_CONNECTOR = """\
{
  "name": "$name",
  "config": {
    "connector.class": "$plugin",
    "topic": "$name",
    "interval.seconds": "1",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false"
  }
}
"""

_SINK_CONNECTOR = """\
{
  "name": "$name",
  "config": {
    "connector.class": "$plugin",
    "topics": "$name",
    "file": "/tmp/$name.jsonl",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter"
  }
}
"""

_TRANSFORM_CONNECTOR = """\
{
  "name": "$name",
  "config": {
    "connector.class": "FileStreamSource",
    "file": "/tmp/$name.txt",
    "topic": "$name",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "transforms": "mine",
    "transforms.mine.type": "$plugin",
    "transforms.mine.suffix": "!"
  }
}
"""

_README = """\
# $name

A $kind for Tidemill Connect: [$module.py]($module.py).

```sh
pip install pytest                      # once, for the test
python -m pytest                        # test it: no broker needed
pip install -e .                        # install it, in the environment that has Tidemill
tidemill connector create $name.json    # deploy it on the worker at 127.0.0.1:8083
```

A worker looks for plugins when it starts: start it after the first installation. For one of your own:

```sh
tidemill broker start --data /tmp/$name-broker &
tidemill connect start &
```

$see
An edited module runs with the next `tidemill connector restart $name`.
"""

_SEE = {
    "source": (
        "`tidemill consume $name --from-beginning` shows its records;\n"
        "`tidemill connector status $name` says how it is.\n"
    ),
    "sink": (
        "`echo hello | tidemill produce $name --create` gives it a record, which arrives in `/tmp/$name.jsonl`;\n"
        "`tidemill connector status $name` says how it is.\n"
    ),
    "transform": (
        "`echo hello >>/tmp/$name.txt` gives it a record, `tidemill consume $name --from-beginning` shows it.\n"
    ),
}

_MODULES = {"source": _SOURCE, "sink": _SINK, "transform": _TRANSFORM}
_TESTS = {"source": _SOURCE_TEST, "sink": _SINK_TEST, "transform": _TRANSFORM_TEST}
_CONNECTORS = {"source": _SOURCE_CONNECTOR, "sink": _SINK_CONNECTOR, "transform": _TRANSFORM_CONNECTOR}
