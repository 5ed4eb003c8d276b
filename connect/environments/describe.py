"""What was installed into an environment, told by a process of it

`python -c …` with the environment's interpreter (see `command`), once, before the environment is put in its place. It
imports what every task needs and then the plugins, as the processes will that tasks are forked from: what cannot be
imported is found out now, with nothing half installed. It also looks whether what the packages ask for is there, in the
environment or beside the worker, since nothing was resolved.
"""

import importlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tidemill.connect.entities import Entity
from tidemill.connect.loader import GROUP, TRANSFORMS_GROUP, load
from tidemill.connect.stand_in import PluginDescription
from tidemill.connect.validation import describe

RUNTIME = ("remote.sdk", "tasks.source", "tasks.sink", "tasks.job")
"""What a process that tasks are forked from has imported."""

PROGRAM = (
    "import json, sys; sys.path += [each for each in json.loads(sys.argv[2]) if each not in sys.path]; "
    "from tidemill.connect.environments.describe import main; main(sys.argv[1])"
)


class Package(Entity):
    """A package of an environment that has plugins."""

    name: str
    version: str
    plugins: tuple[PluginDescription, ...]


class Found(Entity):
    """What an environment has."""

    packages: tuple[Package, ...]
    problems: tuple[str, ...]


def command(environment: str, output: str) -> list[str]:
    """The program and its arguments; it writes its answer into a file, since a plugin may print."""
    return [os.path.join(environment, "bin", "python"), "-P", "-c", PROGRAM, output, json.dumps(sys.path)]


def main(output: str) -> None:
    """Describe the environment this runs in."""
    for module in RUNTIME:
        importlib.import_module(f"tidemill.connect.{module}")
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(output).write_text(found_in(sorted(folders)).model_dump_json(), encoding="utf-8")


def found_in(folders: Iterable[str]) -> Found:
    """What is in the folders of an environment that this process can import from."""
    installed = list(distributions(path=list(folders)))
    problems = list(lacking(installed))
    packages: list[Package] = []
    for each in installed:
        points = each.entry_points
        if points.select(group=TRANSFORMS_GROUP):
            problems.append(f"{each.name} has transforms, which are installed beside the worker, not in an environment")
        left_out: dict[str, str] = {}
        loaded = load(points.select(group=GROUP), left_out=left_out) if not problems else ()
        plugins = tuple(describe(plugin, target) for target, plugin in loaded)
        problems += [f"the plugin {name} of {each.name} cannot be used: {why}" for name, why in left_out.items()]
        if points.select(group=GROUP):
            packages.append(Package(name=canonicalize_name(each.name), version=each.version, plugins=plugins))
    return Found(packages=tuple(packages), problems=tuple(problems))


def lacking(installed: Iterable[Distribution]) -> Iterator[str]:
    """What packages ask for and is not there."""
    waiting = [(each.name, "") for each in installed]
    seen = set(waiting)
    for name, extra in waiting:  # grows while it is read
        package = _installed(name)
        for text in (package.requires or ()) if package is not None else ():
            wanted = Requirement(text)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            there = _installed(wanted.name)
            if there is None or not wanted.specifier.contains(there.version, prereleases=True):
                how = "which is not there" if there is None else f"and {there.version} is there"
                yield f"{name} needs {wanted.name}{wanted.specifier}, {how}: list it with its hash, too"
                continue
            more = [(there.name, each) for each in sorted(wanted.extras) if (there.name, each) not in seen]
            seen.update(more)
            waiting += more


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None
