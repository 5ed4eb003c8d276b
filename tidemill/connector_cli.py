"""`tidemill connector`: connectors of a worker, by its REST API

Works with any Kafka Connect worker. `status` is made for the question "what is wrong": it shows the current problem of
a connector that is RUNNING and gets nowhere (our workers tell it), and the error of one that FAILED.
"""

import json
import re
import sys
import time
import tomllib
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.core.config import ConfigError, parse_assignments, parse_config_text
from tidemill.options import AsJson
from tidemill.output import complain, fail, new_table, print_json, print_table
from tidemill.rest_client import DEFAULT_URL, RestClient, RestFailure

START_WAIT_S = 30.0
POLL_S = 0.2
PLACE = re.compile(r'\s+File "(.+)", line (\d+)')  # of a call in it
TRACEBACK = "Traceback (most recent call last):"

app = typer.Typer(help="Connectors of a Connect worker.", no_args_is_help=True, add_completion=False)

Url = Annotated[
    str,
    typer.Option(
        "--url", "-u", envvar="TIDEMILL_CONNECT_URL", metavar="http://HOST:PORT", help="REST API of a Connect worker."
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; wins over FILE's. Repeatable.")
]
Secrets = Annotated[
    list[str] | None,
    typer.Option("--set-file", metavar="KEY=PATH", help="The same with the content of a file: for secrets."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector.", show_default=False)]


@app.command(name="list")
def list_connectors(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Connectors, what they are and how their tasks do."""
    answer = _ask(url, "GET", "connectors", expand="status")
    found = {name: parts["status"] for name, parts in sorted(answer.items()) if "status" in parts}
    if as_json:
        print_json(list(found.values()))
        return
    table = new_table("connector", "type", "state", "tasks", "problem")
    for name, status in found.items():
        states = [task["state"] for task in status["tasks"]]
        tasks = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        problem = next((problem_line(each) for each in _parts(status) if problem_line(each)), "")
        table.add_row(name, status.get("type"), status["connector"]["state"], tasks or "none", problem)
    print_table(table, empty="no connectors: make one with 'tidemill connector create FILE'")


@app.command()
def status(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """State, worker and current problem of a connector and its tasks; exits 1 if one of them FAILED."""
    found = _ask(url, "GET", "connectors", name, "status")
    if as_json:
        print_json(found)
    else:
        table = new_table("", "state", "worker", "problem")
        for number, each in enumerate(_parts(found)):
            label = "connector" if number == 0 else f"task {each['id']}"
            table.add_row(label, each["state"], each["worker_id"], _classified(each))
        print_table(table)
        if not found["tasks"]:
            print(f"{name} has no tasks")
        _warn(found)
    if any(each["state"] == "FAILED" for each in _parts(found)):
        raise typer.Exit(1)


@app.command()
def history(
    name: Name,
    url: Url = DEFAULT_URL,
    task: Annotated[int | None, typer.Option(metavar="NUMBER", help="Only this task.")] = None,
    as_json: AsJson = False,
) -> None:
    """Starts and ends of a connector and its tasks, why they ended and when they are tried again."""
    found = _ask(url, "GET", "tidemill", "connectors", name, "history")
    parts = [("connector", found["connector"]), *((f"task {each['id']}", each) for each in found["tasks"])]
    if task is not None:
        parts = [part for part in parts if part[1].get("id") == task]
    if as_json:
        print_json({**found, "tasks": [each for label, each in parts if label != "connector"]})
        return
    table = new_table("", "started", "ran", "worker", "end")
    for label, part in parts:
        for run in part["runs"]:
            table.add_row(label, run["started"], _ran(run), run["worker_id"], end_line(run))
    print_table(table, empty=f"nothing of {name} was started since the workers were")
    for worker in found["workers"]:
        if worker.get("problem"):
            complain(f"the worker at {worker['url']} was not heard: {worker['problem']}")


@app.command()
def create(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help='.json as the REST API takes it ({"name": …, "config": {…}}), .properties or .toml '
            "with the name in it; - reads JSON from standard input.",
            show_default=False,
        ),
    ],
    url: Url = DEFAULT_URL,
    update: Annotated[bool, typer.Option("--update", help="Change the connector if it is there already.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it runs, at most half a minute.")] = True,
    settings: Settings = None,
    secrets: Secrets = None,
) -> None:
    """Create a connector."""
    name, config = _read(file, settings, secrets)
    if update:
        answer = _ask(url, "PUT", "connectors", name, "config", body=config)
    else:
        answer = _ask(url, "POST", "connectors", body={"name": name, "config": config})
    print(f"{'in force' if update else 'created'}: {name}")
    _warn(answer)
    if wait:
        _wait_until_running(url, name)


@app.command()
def config(name: Name, url: Url = DEFAULT_URL) -> None:
    """The connector's configuration, as JSON that `create` takes."""
    print(json.dumps({"name": name, "config": _ask(url, "GET", "connectors", name, "config")}, indent=2))


@app.command()
def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As for create.", show_default=False)],
    url: Url = DEFAULT_URL,
    settings: Settings = None,
    secrets: Secrets = None,
) -> None:
    """Say what is wrong with a configuration, without creating anything; exits 1 if something is."""
    name, config = _read(file, settings, secrets)
    body = {"name": name, **config}
    plugin = str(body.get("connector.class", ""))
    if not plugin:
        fail("the configuration has no connector.class: 'tidemill connector plugins' shows what there is")
    answer = _ask(url, "PUT", "connector-plugins", plugin, "config", "validate", body=body)
    problems = [
        f"{entry['value']['name']}: {error}" for entry in answer["configs"] for error in entry["value"]["errors"]
    ]
    for problem in problems:
        complain(problem)
    for entry in answer["configs"]:
        _warn(entry["value"])
    if problems:
        raise typer.Exit(1)
    print(f"nothing is wrong with {file}")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Connectors to delete; their offsets stay.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Stop and delete connectors."""
    for name in names:
        _ask(url, "DELETE", "connectors", name)
        print(f"deleted {name}")


@app.command()
def restart(
    name: Name,
    url: Url = DEFAULT_URL,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Leave alone what runs.")] = False,
    task: Annotated[int | None, typer.Option(metavar="NUMBER", help="Only this task.")] = None,
) -> None:
    """Restart a connector and its tasks."""
    if task is not None:
        _ask(url, "POST", "connectors", name, "tasks", str(task), "restart")
    else:
        flags = {"includeTasks": "true", "onlyFailed": str(only_failed).lower()}
        _ask(url, "POST", "connectors", name, "restart", **flags)
    print(f"restarting {name}" if task is None else f"restarting task {task} of {name}")


@app.command()
def pause(name: Name, url: Url = DEFAULT_URL) -> None:
    """Let tasks rest; they keep their processes."""
    _ask(url, "PUT", "connectors", name, "pause")
    print(f"pausing {name}")


@app.command()
def resume(name: Name, url: Url = DEFAULT_URL) -> None:
    """Go on after pause or stop."""
    _ask(url, "PUT", "connectors", name, "resume")
    print(f"resuming {name}")


@app.command()
def stop(name: Name, url: Url = DEFAULT_URL) -> None:
    """End the tasks and keep configuration and offsets, which can then be changed."""
    _ask(url, "PUT", "connectors", name, "stop")
    print(f"stopping {name}")


@app.command()
def offsets(
    name: Name,
    url: Url = DEFAULT_URL,
    reset: Annotated[bool, typer.Option("--reset", help="Forget all of them; the connector must be stopped.")] = False,
    alter: Annotated[
        Path | None, typer.Option("--set", metavar="FILE", help="Put those of a JSON file, shaped as they are printed.")
    ] = None,
) -> None:
    """The connector's offsets as JSON; --reset forgets them, --set changes them."""
    if reset and alter is not None:
        fail("--reset and --set exclude one another", 2)
    if reset:
        print(_ask(url, "DELETE", "connectors", name, "offsets")["message"])
    elif alter is not None:
        print(_ask(url, "PATCH", "connectors", name, "offsets", body=_json_of(_text(alter), alter))["message"])
    else:
        print(json.dumps(_ask(url, "GET", "connectors", name, "offsets"), indent=2))


@app.command()
def plugins(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """What connectors the worker can run."""
    found = _ask(url, "GET", "connector-plugins")
    if as_json:
        print_json(found)
        return
    table = new_table("class", "type", "version")
    for plugin in found:
        table.add_row(plugin["class"], plugin["type"], plugin.get("version") or "")
    print_table(table, empty="the worker has no plugins")


def _ask(url: str, verb: str, *path: str, body: Any = None, **query: str) -> Any:
    try:
        return RestClient(url).ask(verb, *path, body=body, **query)
    except RestFailure as error:
        absent = error.status == HTTPStatus.NOT_FOUND and path[0] == "connectors"
        fail(f"{error}: 'tidemill connector list' shows those that are" if absent else str(error))


def _warn(answer: dict[str, Any]) -> None:
    """Tell the settings that do nothing; Apache's worker does not know of any."""
    for warning in answer.get("warnings") or ():
        complain(f"warning: {warning}")


def _parts(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [status["connector"], *status["tasks"]]


def _classified(part: dict[str, Any]) -> str:
    """The line that says what is wrong, behind the class of the failure, which our workers tell."""
    return ": ".join(filter(None, (part.get("failure"), problem_line(part))))


def end_line(run: dict[str, Any]) -> str:
    """Why a run has ended and what becomes of it."""
    if run.get("ended") is None:
        return ""
    line = ": ".join(filter(None, (run.get("failure"), run.get("reason"))))
    return f"{line} (next try {run['next_try']})" if run.get("next_try") else line


def _ran(run: dict[str, Any]) -> str:
    return "runs" if run.get("ended") is None else f"{run['ran_ms'] / 1000:.1f} s"


def problem_line(part: dict[str, Any]) -> str:
    """One line: the current problem and since when, or the one of the trace that says what is wrong, and where."""
    current = part.get("problem")
    if current:
        since = f" (since {current['since']})" if current.get("since") else ""
        return f"{current['message']}{since}"
    lines = (part.get("trace") or "").strip().splitlines()
    if TRACEBACK in lines:  # Python's: the error stands behind the calls, which are indented
        after = lines[len(lines) - lines[::-1].index(TRACEBACK) :]
        places = [f"{Path(found[1]).name}:{found[2]}" for found in map(PLACE.match, after) if found]
        where = f" ({places[-1]})" if places else ""
        return next((line + where for line in after if not line.startswith(" ")), TRACEBACK)
    return lines[0] if lines else ""


def _wait_until_running(url: str, name: str) -> None:
    """Show how it begins: the first problem, or that everything runs."""
    deadline = time.monotonic() + START_WAIT_S
    while time.monotonic() < deadline:
        try:
            found = RestClient(url).ask("GET", "connectors", name, "status")
        except RestFailure as error:
            if error.status != 404:  # it has no status yet
                fail(str(error))
            time.sleep(POLL_S)
            continue
        parts = _parts(found)
        failed = [each for each in parts if each["state"] == "FAILED"]
        if failed:
            fail(f"{name} FAILED: {problem_line(failed[0])}")
        states = {each["state"] for each in parts}
        if len(parts) > 1 and not states & {"UNASSIGNED", "RESTARTING"}:
            trouble = next((problem_line(each) for each in parts if problem_line(each)), "")
            print(
                f"{name} is {', '.join(sorted(states))} with {len(parts) - 1} tasks{f': {trouble}' if trouble else ''}"
            )
            return
        time.sleep(POLL_S)
    fail(f"{name} does not run after {START_WAIT_S:.0f} s: look at 'tidemill connector status {name}'")


def _read(file: Path, given: Sequence[str] | None, secrets: Sequence[str] | None) -> tuple[str, dict[str, Any]]:
    """Name and configuration of a file, in any of the shapes that people keep them in, and what was given beside it."""
    text = _text(file)
    if file.suffix in (".properties", ".toml"):
        try:
            settings: dict[str, Any] = dict(parse_config_text(text, file.name))
        except (ConfigError, tomllib.TOMLDecodeError) as error:
            fail(f"{file}: {error}")
    else:
        settings = _json_of(text, file)
        if isinstance(settings, dict) and isinstance(settings.get("config"), dict):
            settings = {**settings["config"], **({"name": settings["name"]} if "name" in settings else {})}
    if not isinstance(settings, dict):
        fail(f'{file}: not a JSON object such as {{"name": "…", "config": {{…}}}}')
    settings = {**settings, **_given(given, secrets)}
    name = str(settings.get("name") or "")
    if not name:
        fail(f"{file}: the connector has no name: add the setting 'name'")
    return name, settings


def _given(settings: Sequence[str] | None, secrets: Sequence[str] | None) -> dict[str, str]:
    try:
        files = parse_assignments(secrets or ())
        return parse_assignments(settings or ()) | {
            key: _text(Path(path)).rstrip("\r\n") for key, path in files.items()
        }
    except ConfigError as error:
        fail(str(error))


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"cannot read {file}: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}")


def _json_of(text: str, file: Path) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        fail(f"{file} is not JSON: {error}")
