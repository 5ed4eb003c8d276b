"""`tidemill plugin`: plugins in environments of their own

Two ways to the same thing. Without more the commands ask a worker by its REST API, which installs and removes only what
its settings allow. With `--folder` they work on the folder itself, on the machine that has it or while an image is
built: who may write there may install there.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.options import AsJson
from tidemill.output import fail, new_table, print_json, print_table
from tidemill.rest_client import ANSWER_TIMEOUT_S, DEFAULT_URL, RestClient, RestFailure

INSTALL_TIMEOUT_S = 1_300.0  # the worker gives up before

app = typer.Typer(
    help="Plugins of a Connect worker, each version in its own environment.", no_args_is_help=True, add_completion=False
)

Url = Annotated[
    str,
    typer.Option(
        "--url", "-u", envvar="TIDEMILL_CONNECT_URL", metavar="http://HOST:PORT", help="REST API of the worker."
    ),
]
FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", metavar="FOLDER", help="Work in this folder (a worker's plugin.environments) instead."),
]
Package = Annotated[str, typer.Argument(metavar="NAME==VERSION", help="The package, as it is listed.")]


@app.command()
def install(
    requirements: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME==VERSION|WHEEL...", help="A package, or a wheel on this machine (with --folder)."),
    ] = None,
    hashes: Annotated[
        list[str] | None, typer.Option("--hash", metavar="sha256:HEX", help="Of the one package; repeatable.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--requirement", "-r", metavar="FILE", help="Packages with their hashes, one a line.")
    ] = None,
    url: Url = DEFAULT_URL,
    folder: FolderOption = None,
) -> None:
    """Install a plugin, and what it needs beyond Tidemill, into an environment of its own."""
    named = list(requirements or ())
    wheels = [Path(each) for each in named if each.endswith(".whl")]
    lines = [each for each in named if not each.endswith(".whl")]
    if hashes:
        if len(lines) != 1:
            fail("--hash goes with one NAME==VERSION: several, with their hashes, go into a file for -r", 2)
        lines = [" ".join([lines[0], *(f"--hash={each}" for each in hashes)])]
    if file is not None:
        lines += _text(file).splitlines()
    if not lines and not wheels:
        fail("nothing to install: name NAME==VERSION with --hash, a wheel, or a file with -r", 2)
    if folder is not None:
        _install_here(folder, lines, wheels)
        return
    if wheels:
        fail(
            f"{wheels[0]} is a file of this machine: install it on the worker's with --folder, or put it where the "
            "worker's pip finds it (PIP_FIND_LINKS) and name NAME==VERSION with --hash",
            2,
        )
    made = _ask(url, "POST", "tidemill", "plugins", body={"requirements": lines}, timeout_s=INSTALL_TIMEOUT_S)
    _installed(f"{made['name']}=={made['version']}", made["plugins"])


@app.command(name="list")
def list_plugins(url: Url = DEFAULT_URL, folder: FolderOption = None, as_json: AsJson = False) -> None:
    """What is installed in environments of its own, and which connectors use it."""
    if folder is not None:
        found = _here(folder)
    else:
        answer = _ask(url, "GET", "tidemill", "plugins")
        if answer.get("problem"):
            fail(answer["problem"])
        found = answer["environments"]
    if as_json:
        print_json(found)
        return
    table = new_table("package", "version", "plugins", "used by", "problem")
    for each in found:
        plugins = ", ".join(_called(plugin) for plugin in each.get("plugins") or ())
        users = ", ".join(each.get("used_by") or ())
        table.add_row(each["name"], each.get("version") or "", plugins, users, each.get("problem") or "")
    print_table(table, empty="nothing is installed in an environment of its own")


@app.command()
def remove(
    package: Package,
    url: Url = DEFAULT_URL,
    folder: FolderOption = None,
    force: Annotated[bool, typer.Option("--force", help="Also where connectors use it.")] = False,
) -> None:
    """Remove a plugin that no connector uses; in a folder, one that no process runs in."""
    name, separator, version = package.partition("==")
    if not separator or not version:
        fail(f"say which version: NAME==VERSION, not {package!r}; 'tidemill plugin list' has those there are", 2)
    if folder is None:
        _ask(url, "DELETE", "tidemill", "plugins", name, version, force=str(force).lower())
    else:
        from packaging.utils import canonicalize_name

        from tidemill.connect.environments.folder import Folder, FolderProblem

        try:
            place = Folder(str(folder))
            place.remove(place.find(canonicalize_name(name), version), force=force)
        except FolderProblem as error:
            fail(str(error))
    print(f"removed {package}")


def _install_here(folder: Path, lines: Sequence[str], wheels: Sequence[Path]) -> None:
    from tidemill.connect.environments.folder import Folder, FolderProblem
    from tidemill.connect.environments.install import InstallFailed, install, of_wheel
    from tidemill.connect.environments.requirements import BadRequirements, parse, together

    try:
        pinned = together([*(parse("\n".join(lines)) if lines else ()), *(of_wheel(each) for each in wheels)])
    except BadRequirements as error:
        fail(f"this cannot be installed:\n{error}", 2)
    try:
        made = install(Folder(str(folder)), pinned)
    except (InstallFailed, FolderProblem) as error:
        fail(f"nothing was installed: {error}")
    plugins = made.description.plugins if made.description is not None else ()
    _installed(made.called, [{"class": each.name, "version": each.version} for each in plugins])


def _here(folder: Path) -> list[dict[str, Any]]:
    from tidemill.connect.environments.folder import Folder

    try:
        found = Folder(str(folder)).environments()
    except OSError as error:
        fail(f"{folder} cannot be read: {error.strerror}")
    return [
        {
            "name": each.header.name if each.header else each.called,
            "version": each.header.version if each.header else None,
            "folder": each.path,
            "installed": each.description.installed if each.description else None,
            "requirements": list(each.description.requirements) if each.description else [],
            "plugins": [
                {"class": plugin.name, "type": plugin.kind.value, "version": plugin.version}
                for plugin in (each.description.plugins if each.description else ())
            ],
            "problem": each.problem or None,
        }
        for each in found
    ]


def _installed(package: str, plugins: Sequence[dict[str, Any]]) -> None:
    print(f"installed {package}: {', '.join(map(_called, plugins))}")


def _called(plugin: dict[str, Any]) -> str:
    return f"{plugin['class']} {plugin.get('version') or ''}".strip()


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"cannot read {file}: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}")


def _ask(url: str, verb: str, *path: str, body: Any = None, timeout_s: float = ANSWER_TIMEOUT_S, **query: str) -> Any:
    try:
        return RestClient(url, timeout_s).ask(verb, *path, body=body, **query)
    except RestFailure as error:
        fail(str(error))
