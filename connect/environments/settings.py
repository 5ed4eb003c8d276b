"""Plugin environments in the settings of a worker

`plugin.environments` is the folder; without it there are none. Whoever may write into the folder may install there, by
`tidemill plugin install --folder`. Through the REST API nothing may be installed or removed but the packages that
`plugin.install.packages` lists, none by default: a plugin is code that runs as the worker's user, and the API asks
nobody who they are. `*` is any package, and with it anybody's code.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from packaging.utils import InvalidName, canonicalize_name

from tidemill.connect.environments.requirements import ANY
from tidemill.core.config import ConfigKey, ConfigType, Importance, Value

FOLDER, PACKAGES = "plugin.environments", "plugin.install.packages"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSettings:
    """What the worker's settings say of plugin environments."""

    folder: str = ""  # empty: there are none
    packages: tuple[str, ...] = ()

    def refusal(self) -> str:
        """Why nothing at all can be installed through the API; empty if something can."""
        if not self.folder:
            return f"this worker has no plugin environments: set {FOLDER} to a folder for them"
        if not self.packages:
            return (
                f"this worker lets nothing be installed or removed through its REST API: list the package in "
                f"{PACKAGES}, or use the command on the worker's machine with --folder {self.folder}"
            )
        return ""


def _names(value: Value) -> str | None:
    for entry in cast("tuple[str, ...]", value):
        try:
            if entry != ANY:
                canonicalize_name(entry, validate=True)
        except InvalidName:
            return f"{entry} is no name of a package"
    return None


KEYS: Final = (
    ConfigKey(
        name=FOLDER,
        type=ConfigType.STRING,
        default="",
        doc="Folder of plugins that are installed in virtual environments of their own, found without a restart",
        importance=Importance.MEDIUM,
    ),
    ConfigKey(
        name=PACKAGES,
        type=ConfigType.LIST,
        default=(),
        doc="Packages that may be installed there, and removed, through the REST API; `*` for all there are",
        importance=Importance.MEDIUM,
        valid=_names,
    ),
)
"""The settings, as rows of the worker's table."""


def problems(values: Mapping[str, Value]) -> Iterator[str]:
    """What two of them together cannot mean."""
    if values.get(PACKAGES) and not values.get(FOLDER):
        yield f"{PACKAGES} needs {FOLDER}: a folder to install into"


def parsed(values: Mapping[str, Value]) -> EnvironmentSettings:
    """What a parsed table says."""
    return EnvironmentSettings(folder=str(values[FOLDER]), packages=cast("tuple[str, ...]", values[PACKAGES]))
