"""A plugin is installed into an environment of its own

Built beside its place and put there whole: a virtual environment, what is listed (by pip, by its hash, as a wheel, so
that nothing of a package runs while it is installed), a look at what that is (`describe`), and last the file that says
so. Whatever goes wrong on the way, or whoever is killed, nothing has changed.

pip is the worker's own, used on the new environment from outside, which has none. Where packages come from is pip's own
business: its configuration, and those of its variables that say it (PIP_INDEX_URL, PIP_FIND_LINKS, PIP_NO_INDEX), count
as for any other use. Of the worker's other variables it gets what a program needs to run and to reach a network
(`for_pip`): neither secrets, nor what would have it install elsewhere.

The environment sees no packages of the worker by itself; they are put behind its own when a process of it is started
(`remote/guardian.py`), so that what it brings is what its plugins get, and tidemill is always that of the worker.
"""

import contextlib
import hashlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import structlog
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from tidemill.connect.environments import describe, in_use
from tidemill.connect.environments.folder import FORMAT, PYTHON, Description, Environment, Folder
from tidemill.connect.environments.requirements import BadRequirements, Pinned
from tidemill.connect.stand_in import PluginDescription, stand_in
from tidemill.connect.versions import rank

log = structlog.get_logger("tidemill.connect.environments")

PIP_TIMEOUT_S = 900.0  # for everything to be fetched; Spark is 400 MB
DESCRIBE_TIMEOUT_S = 120.0  # for everything to be imported
SAID_LINES_MAX, SAID_BYTES_MAX = 25, 16 << 10  # of a program that failed, quoted
FOR_PIP = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|XDG_\w+_(HOME|DIRS)|LD_LIBRARY_PATH|NETRC|"
    r"SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(?i:(https?|ftp|all|no)_proxy)|"
    r"PIP_(INDEX_URL|EXTRA_INDEX_URL|NO_INDEX|FIND_LINKS|CONFIG_FILE|CERT|CLIENT_CERT|TRUSTED_HOST|PROXY|"
    r"KEYRING_PROVIDER|CACHE_DIR|NO_CACHE_DIR|TIMEOUT|DEFAULT_TIMEOUT|RETRIES)"
)
"""The variables that pip gets."""

PYTHON_PATHS = ("PYTHONPATH", "PYTHONHOME")
"""The variables by which a worker's Python may find its packages; in an environment they would come first."""

PREFIX = "tidemill-plugin-environment"


class InstallFailed(Exception):
    """Nothing was installed; the text says why and what helps."""


def of_wheel(file: Path) -> Pinned:
    """A wheel at hand, pinned to what it is; raises BadRequirements."""
    try:
        name, version, _, _ = parse_wheel_filename(file.name)
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except InvalidWheelFilename as error:
        raise BadRequirements(f"{file}: {error}") from None
    except OSError as error:
        raise BadRequirements(f"{file}: {error.strerror}") from None
    return Pinned(canonicalize_name(name), str(version), (f"sha256:{digest}",), f"{name} @ {file.resolve().as_uri()}")


def for_pip(environ: Mapping[str, str]) -> dict[str, str]:
    """What pip gets of the worker's variables."""
    return {name: value for name, value in environ.items() if FOR_PIP.fullmatch(name)}


def install(folder: Folder, pinned: Sequence[Pinned], environ: Mapping[str, str] | None = None) -> Environment:
    """Install into an environment of its own, which is returned; raises InstallFailed or FolderProblem.

    What is there already, of the same content, stays and is returned. Blocks for as long as it takes.
    """
    if importlib.util.find_spec("pip") is None:
        raise InstallFailed(f"there is no pip beside Tidemill: run '{sys.executable} -m ensurepip'")
    folder.sweep()
    digest = _digest(pinned)
    for each in folder.environments():
        if each.path.endswith(f"-{digest}") and not each.problem:
            return each
    surroundings = dict(os.environ if environ is None else environ)
    try:
        return _built(folder, pinned, digest, surroundings)
    except OSError as error:  # such as a full disk
        raise InstallFailed(f"{error.filename or folder.path}: {error.strerror}") from error


def _built(folder: Folder, pinned: Sequence[Pinned], digest: str, surroundings: Mapping[str, str]) -> Environment:
    with folder.making() as (made, kept):
        venv.EnvBuilder(symlinks=True, with_pip=False, prompt=PREFIX).create(made)
        listed = os.path.join(made, "requirements.txt")
        Path(listed).write_text("".join(f"{each.line}\n" for each in pinned), encoding="utf-8")
        _run("pip", _pip(made, listed), PIP_TIMEOUT_S, kept, for_pip(surroundings))
        package = _look(made, kept, surroundings)
        description = Description(
            format=FORMAT,
            name=package.name,
            version=package.version,
            python=PYTHON,
            requirements=tuple(each.line for each in pinned),
            installed=datetime.now(UTC).isoformat(timespec="seconds"),
            plugins=package.plugins,
        )
        name = f"{package.name}-{package.version}-{digest}"
        _say_where(made, os.path.join(folder.path, name))
        for plugin in description.plugins:
            _try_out(plugin, made)
        Path(made, in_use.DESCRIPTION).write_text(description.model_dump_json(indent=1), encoding="utf-8")
        with folder.placing() as there:
            for each in there:
                if os.path.basename(each.path) == name and not each.problem:
                    return each  # somebody else was quicker
            _refuse_what_is_there(description, there)
            return folder.place(made, name)


def _digest(pinned: Sequence[Pinned]) -> str:
    content = "\n".join(sorted(f"{each.name}=={each.version} {' '.join(sorted(each.hashes))}" for each in pinned))
    return hashlib.sha256(f"{PYTHON}\n{content}".encode()).hexdigest()[:8]


def _pip(made: str, listed: str) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", "pip", "--python", os.path.join(made, "bin", "python"), "install"),
        *("--no-input", "--disable-pip-version-check", "--quiet", "--progress-bar", "off"),
        *("--only-binary", ":all:", "--no-deps", "--require-hashes", "-r", listed),
    ]


def _look(made: str, kept: int, environ: Mapping[str, str]) -> describe.Package:
    """The package that has the plugins."""
    output = os.path.join(made, "found.json")
    environ = {name: value for name, value in environ.items() if name not in PYTHON_PATHS}
    _run("the look at its plugins", describe.command(made, output), DESCRIBE_TIMEOUT_S, kept, environ)
    found = describe.Found.model_validate_json(Path(output).read_text(encoding="utf-8"))
    os.unlink(output)
    if found.problems:
        raise InstallFailed("\n".join(found.problems))
    if len(found.packages) != 1:
        named = ", ".join(each.name for each in found.packages)
        raise InstallFailed(
            f"several packages have plugins, install each by itself: {named}"
            if named
            else "none of the packages has a plugin: an entry point of the group tidemill.plugins"
        )
    return found.packages[0]


def _try_out(plugin: PluginDescription, made: str) -> None:
    """Have each plugin stand where the worker would see it, while it can still be refused."""
    try:
        stand_in(plugin, made)
    except Exception as error:  # of what its author has called the settings, say
        raise InstallFailed(f"the plugin {plugin.name} cannot be described: {type(error).__name__}: {error}") from None


def _refuse_what_is_there(new: Description, there: Sequence[Environment]) -> None:
    """A version, of a package or of a plugin, means one thing."""
    for each in there:
        if each.is_version(new.name, new.version):
            how = f"but {each.problem}" if each.problem else "with other content"
            raise InstallFailed(f"{each.called} is there already, {how}: remove it first")
        old = each.description
        taken = {(plugin.name, rank(plugin.version)) for plugin in (old.plugins if old is not None else ())}
        for plugin in new.plugins:
            if (plugin.name, rank(plugin.version)) in taken:
                raise InstallFailed(
                    f"{new.name}=={new.version} has version {plugin.version} of the plugin {plugin.name}, and so has "
                    f"{each.called}, which is there: give the plugin another version in its code"
                )


def _say_where(made: str, place: str) -> None:
    """Have scripts, and what else names the folder, name the one that it is moved to."""
    programs = os.path.join(made, "bin")
    files = [os.path.join(programs, each) for each in os.listdir(programs)]
    for each in [*files, os.path.join(made, "pyvenv.cfg")]:
        if os.path.islink(each):
            continue
        content = Path(each).read_bytes()
        if made.encode() in content:
            Path(each).write_bytes(content.replace(made.encode(), place.encode()))


def _run(what: str, command: Sequence[str], timeout_s: float, kept: int, environ: Mapping[str, str]) -> None:
    """Run a program to its end, quoting it where it fails; it keeps the folder for itself if this process is killed."""
    with tempfile.TemporaryFile() as said:  # no pipe: it may say much, and what it starts may outlive it
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            pass_fds=(kept,),
            start_new_session=True,
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise InstallFailed(f"{what} took longer than {timeout_s:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started, also when the user has had enough
            process.wait()
        if process.returncode != 0:
            said.seek(max(0, said.seek(0, os.SEEK_END) - SAID_BYTES_MAX))
            lines = said.read().decode("utf-8", "replace").strip().splitlines()[-SAID_LINES_MAX:]
            raise InstallFailed("\n".join([f"{what} has failed:", *(f"  {line}" for line in lines)]))
