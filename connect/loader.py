"""The plugins that are installed, found by name

A plugin is an entry point of the group `tidemill.plugins` that loads to a `tidemill.connect.api.Plugin`. People call a
plugin by what they know: its own name, an alias such as the Java class it replaces, that class without its package, and
any of them with or without the `Connector` suffix. All of those lead to the same plugin; where two could be meant,
an exact name wins over an alias and an alias over a shortened one. Of several versions of a plugin it is the one that a
configuration asks for (`connector.plugin.version`), or else the newest.

An entry point that cannot be loaded (a missing library, a bug at import) is logged with its reason and left out: one
broken plugin must never take the worker or the other plugins with it. Whoever then asks for what is not there is told
of those as well.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Self

import structlog

from tidemill.connect.api import Fatal, Plugin, PluginKind
from tidemill.connect.stand_in import StandIn
from tidemill.connect.versions import BadVersion, rank, shown, wanted
from tidemill.core.extras import install_hint

log = structlog.get_logger("tidemill.connect.loader")

GROUP = "tidemill.plugins"
"""The entry point group."""

TRANSFORMS_GROUP = "tidemill.transforms"
"""The entry point group of transformations and predicates."""

CONNECTORS = (PluginKind.SOURCE, PluginKind.SINK)
TRANSFORMS = (PluginKind.TRANSFORMATION, PluginKind.PREDICATE)

SUFFIX = "Connector"
"""What Java's connector classes end with and people leave out."""


class UnknownPlugin(Fatal, LookupError):
    """No installed plugin answers to the name."""


class NoSuchVersion(UnknownPlugin):
    """The plugin is there, and not in a version that is asked for."""


class Plugins:
    """All usable plugins of this process."""

    def __init__(
        self,
        plugins: Iterable[Plugin],
        targets: Mapping[str, str] | None = None,
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        self._plugins = tuple(plugins)
        self._left_out = dict(left_out or {})  # entry points, with the reason
        self._targets = dict(targets or {})
        self._others: Callable[[], tuple[Plugin, ...]] = tuple
        self._index: tuple[tuple[Plugin, ...], Mapping[str, Sequence[Plugin]]] = ((), _index(self._plugins))

    def with_others(self, others: Callable[[], tuple[Plugin, ...]]) -> Self:
        """These and others that come and go; where both have the same version of a plugin, theirs is meant."""
        found = type(self)(self._plugins, self._targets, self._left_out)
        found._others = others
        return found

    @classmethod
    def installed(cls) -> Self:
        """Load every entry point of the group."""
        left_out: dict[str, str] = {}
        loaded = list(load(entry_points(group=GROUP), left_out=left_out))
        return cls([plugin for _, plugin in loaded], {plugin.name: target for target, plugin in loaded}, left_out)

    def __iter__(self) -> Iterator[Plugin]:
        return iter((*self._plugins, *self._others()))

    def target(self, plugin: Plugin) -> str:
        """Where a process that needs only this plugin can import it from (`module:attribute`); else its name."""
        if isinstance(plugin, StandIn):
            return plugin.target
        return self._targets.get(plugin.name, plugin.name)

    def find(self, name: str, version: str = "") -> Plugin:
        """The newest plugin people mean by a name and a version; raises UnknownPlugin, which lists what there is."""
        versions = self.versions(name)
        try:
            among = [plugin for plugin in versions if wanted(version).contains(plugin.version)]
        except BadVersion as error:
            raise NoSuchVersion(str(error)) from None
        if among:
            return among[-1]
        there = shown(plugin.version for plugin in versions)
        raise NoSuchVersion(f"Version {version} of {versions[0].name} is not installed: this worker has {there}")

    def of(self, config: Mapping[str, str | None]) -> Plugin:
        """The plugin a connector's configuration asks for; raises UnknownPlugin."""
        return self.find(config.get("connector.class") or "", config.get("connector.plugin.version") or "")

    def versions(self, name: str) -> Sequence[Plugin]:
        """Every version of the plugin people mean by `name`, the newest last; raises UnknownPlugin."""
        others = self._others()
        if others is not self._index[0]:
            self._index = (others, _index((*self._plugins, *others)))
        index = self._index[1]
        meant = index.get(name) or index.get(name.removesuffix(SUFFIX))
        if meant is None:
            known = ", ".join(sorted({plugin.name for plugin in self})) or "none"
            left_out = "".join(f" The plugin {each} was left out: {why}." for each, why in self._left_out.items())
            raise UnknownPlugin(
                f"Failed to find any class that implements Connector and which name matches {name}, "
                f"available connectors are: {known}.{left_out} A worker finds what is installed when it starts: "
                "install it beside every worker of the group, then start the workers again; or with "
                "'tidemill plugin install', which needs no start"
            )
        return meant


@functools.cache
def installed_transforms() -> tuple[Plugin, ...]:
    """Every usable entry point of the group of transformations and predicates, loaded once."""
    return tuple(plugin for _, plugin in load(entry_points(group=TRANSFORMS_GROUP), TRANSFORMS))


def load(
    points: Iterable[EntryPoint],
    kinds: Collection[PluginKind] = CONNECTORS,
    *,
    left_out: MutableMapping[str, str] | None = None,
) -> Iterator[tuple[str, Plugin]]:
    """The plugins of entry points, by target; what is none, or of another kind, is logged and left out."""
    left_out = {} if left_out is None else left_out
    for point in sorted(points, key=lambda point: point.name):
        try:
            plugin = point.load()
        except (Exception, SystemExit) as error:
            left_out[point.name] = _reason(error)
            log.warning("plugin left out", entry_point=point.name, target=point.value, reason=left_out[point.name])
            continue
        if isinstance(plugin, Plugin) and plugin.kind in kinds:
            yield point.value, plugin
            continue
        reason = f"a {type(plugin).__name__}, not a Plugin"
        if isinstance(plugin, Plugin):
            other = TRANSFORMS_GROUP if point.group == GROUP else GROUP
            reason = f"a {plugin.kind} belongs into the entry point group {other}"
        left_out[point.name] = reason
        log.warning("plugin left out", entry_point=point.name, target=point.value, reason=reason)


def _reason(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        package = str(error.name).partition(".")[0]
        hint = install_hint(package)
        return f"needs the Python package {package!r}{f': {hint}' if hint else ''}"
    return f"{type(error).__name__}: {error}"


def _index(plugins: Collection[Plugin]) -> dict[str, Sequence[Plugin]]:
    """What each spelling means: every version of one plugin, the newest last."""
    families: dict[str, list[Plugin]] = {}
    for plugin in sorted(plugins, key=lambda each: rank(each.version)):
        families.setdefault(plugin.name, []).append(plugin)
    found: dict[str, Sequence[Plugin]] = {}
    for spellings in (_exact, _aliases, _shortened):
        for plugin in plugins:
            for spelling in spellings(plugin):
                found.setdefault(spelling, families[plugin.name])
    return found


def _exact(plugin: Plugin) -> Iterator[str]:
    yield plugin.name


def _aliases(plugin: Plugin) -> Iterator[str]:
    yield from plugin.aliases


def _shortened(plugin: Plugin) -> Iterator[str]:
    for name in (plugin.name, *plugin.aliases):
        simple = name.rpartition(".")[2]
        yield from (name.removesuffix(SUFFIX), simple, simple.removesuffix(SUFFIX))
