"""The folder with the plugin environments of a worker

Each environment is a folder in it, called after the package, its version and what was installed, and is never changed:

    web-orders-1.2.0-5f0c2e9a/     a virtual environment, with a file that describes its plugins
    .making-…                      one that is being built; a file in it is locked by whoever builds it
    .gone-…                        one that is being removed
    .lock                          held for a moment by whoever puts something in its place

What is there under a name without a point is whole: it was put there by one rename, after its last byte was on the
disk. Whatever else is found, and nobody holds any more, was left behind by somebody who was killed, and is removed by
the next who comes. Several workers, and commands beside them, can share the folder.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import ConfigDict

from tidemill.connect.entities import Entity
from tidemill.connect.environments import in_use
from tidemill.connect.stand_in import PluginDescription
from tidemill.connect.versions import rank

log = structlog.get_logger("tidemill.connect.environments")

FORMAT = 1
"""Of the file that describes an environment."""

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

MAKING, GONE, LOCK, KEPT = ".making-", ".gone-", ".lock", ".kept"

_ANEW = "remove it and install it again"


class FolderProblem(Exception):
    """Something cannot be done in the folder; a sentence that says why and what helps."""


class NotThere(FolderProblem):
    """There is no such environment."""


class InUse(FolderProblem):
    """An environment that processes run in."""


class Header(Entity):
    """What can be read of an environment whichever version of Tidemill has made it."""

    model_config = ConfigDict(extra="ignore")

    format: int
    name: str  # of the package that has the plugins
    version: str


class Description(Header):
    """What is in an environment; fields of later versions are passed over."""

    python: str  # 3.11
    requirements: tuple[str, ...]  # with their hashes
    installed: str  # when
    plugins: tuple[PluginDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One that is there; without a description where it has a problem."""

    path: str
    header: Header | None = None  # there also where the rest cannot be read
    description: Description | None
    problem: str = ""  # why it cannot be used here

    @property
    def called(self) -> str:
        """The package and its version."""
        if self.header is None:
            return os.path.basename(self.path)
        return f"{self.header.name}=={self.header.version}"

    def is_version(self, name: str, version: str) -> bool:
        """Whether it is that version of that package; 1.0 and 1.0.0 are one."""
        return self.header is not None and self.header.name == name and rank(self.header.version) == rank(version)


class Folder:
    """The folder, whose path the operator has set."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    def names(self) -> tuple[str, ...]:
        """What is there; of one name the content is always the same. Nothing where the folder does not exist yet."""
        try:
            found = list(os.scandir(self.path))
        except FileNotFoundError:
            return ()
        return tuple(sorted(each.name for each in found if not each.name.startswith(".") and each.is_dir()))

    def environments(self) -> tuple[Environment, ...]:
        """Everything that is there."""
        return tuple(self.environment(name) for name in self.names())

    def environment(self, name: str) -> Environment:
        """One of them, whose description is read; whatever is wrong with it is its problem, and no other's."""
        path = os.path.join(self.path, name)
        header: Header | None = None
        try:
            content = Path(path, in_use.DESCRIPTION).read_bytes()
            header = Header.model_validate_json(content)
            if header.format != FORMAT:
                problem = (
                    f"it was made by another version of Tidemill (format {header.format}, and this one has {FORMAT})"
                )
                return Environment(path=path, header=header, description=None, problem=f"{problem}: {_ANEW}")
            found = Description.model_validate_json(content)
        except OSError as error:
            return Environment(path=path, description=None, problem=f"it is no plugin environment: {error.strerror}")
        except Exception as error:
            why = f"{type(error).__name__}: {str(error).partition(os.linesep)[0]}"
            problem = f"what describes it cannot be read: {why}: {_ANEW}"
            return Environment(path=path, header=header, description=None, problem=problem)
        if found.python != PYTHON:
            problem = f"it was made for Python {found.python}, and this is {PYTHON}: {_ANEW}"
            return Environment(path=path, header=found, description=found, problem=problem)
        return Environment(path=path, header=found, description=found)

    def find(self, name: str, version: str) -> Environment:
        """The environment of a version of a package; raises NotThere, which lists what is there.

        The name of a folder counts only where nothing in it says what it is.
        """
        found = self.environments()
        for each in found:
            nameless = each.header is None and os.path.basename(each.path) == f"{name}-{version}"
            if each.is_version(name, version) or nameless:
                return each
        there = ", ".join(each.called for each in found) or "none"
        raise NotThere(f"{name}=={version} is not installed in {self.path}; installed are: {there}")

    # ---------------------------------------------------------------- changes

    @contextlib.contextmanager
    def making(self) -> Iterator[tuple[str, int]]:
        """A folder to build an environment in, with the file that keeps it; what is still in it at the end is removed.

        Whoever builds in another process is given the file, so that nobody takes the folder for left behind meanwhile.
        """
        try:
            os.makedirs(self.path, exist_ok=True)
            with self._alone():
                path = os.path.join(self.path, MAKING + secrets.token_hex(8))
                os.mkdir(path)
                kept = os.open(os.path.join(path, KEPT), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(kept, fcntl.LOCK_EX)
        except OSError as error:
            raise FolderProblem(f"{self.path} cannot be written: {error.strerror}") from None
        try:
            yield path, kept
        finally:
            shutil.rmtree(path, ignore_errors=True)
            os.close(kept)

    @contextlib.contextmanager
    def placing(self) -> Iterator[tuple[Environment, ...]]:
        """What is there, with nobody else who could put something in its place."""
        with self._alone():
            yield self.environments()

    def place(self, made: str, name: str) -> Environment:
        """Put what was made in its place; for whoever is alone."""
        os.unlink(os.path.join(made, KEPT))
        _make_durable(made)
        os.rename(made, os.path.join(self.path, name))
        _sync(self.path)
        return self.environment(name)

    def remove(self, environment: Environment, *, force: bool) -> None:
        """Take an environment away; raises InUse if processes run in it, unless it is forced."""
        gone = os.path.join(self.path, GONE + secrets.token_hex(8))
        try:
            with self._alone(), in_use.alone(environment.path) as nobody:
                if not force and not nobody:
                    raise InUse(
                        f"processes run in {environment.called}: tasks, or what stays ready for a minute after the "
                        "last; wait, stop them, or remove it by force, after which what runs may fail to import more"
                    )
                os.rename(environment.path, gone)
        except FileNotFoundError:
            raise NotThere(f"{environment.called} is not installed in {self.path} any more") from None
        except OSError as error:
            raise FolderProblem(f"{environment.path} cannot be removed: {error.strerror}") from None
        shutil.rmtree(gone, ignore_errors=True)  # of what cannot be removed now the next who comes removes the rest

    def sweep(self) -> None:
        """Remove what was left behind."""
        with contextlib.suppress(OSError):  # it does not exist, or is not ours to change
            leftovers = [each for each in os.listdir(self.path) if each.startswith((MAKING, GONE))]
            if not leftovers:
                return
            with self._alone():
                for name in leftovers:
                    self._remove_leftover(os.path.join(self.path, name))

    def _remove_leftover(self, path: str) -> None:
        try:
            held = os.open(os.path.join(path, KEPT), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            shutil.rmtree(path, ignore_errors=True)  # nobody's: who makes one has this file before others may look
            return
        with contextlib.suppress(BlockingIOError):  # somebody is at it
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                log.info("an unfinished plugin environment was removed", folder=path)
            finally:
                os.close(held)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        lock = os.open(os.path.join(self.path, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _make_durable(folder: str) -> None:
    """Have the disk keep everything in a folder, before its name says that it is whole."""
    for path, _, files in os.walk(folder):
        for each in files:
            file = os.path.join(path, each)
            if not os.path.islink(file):
                _sync(file)
        _sync(path)


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
