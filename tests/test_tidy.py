"""House rules that a machine can check

One pass over the syntax tree of every product file. A failure reads `path:line: rule: why`. The lists of exceptions
may only shrink.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("core", "broker", "connect", "mirror", "spark_sink", "tidemill")
GENERATED = re.compile(r"(_pb2(_grpc)?\.pyi?$)|(^core/wire/messages/)")

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800
DOCSTRING_FIRST_LINE_MAX = 72
DRAWERS = {"util", "utils", "helper", "helpers", "common", "misc", "base", "manager", "managers"}

LONG_FUNCTIONS: frozenset[str] = frozenset()
"""`path:function` of functions over the limit; may only shrink."""

COVERED_ELSEWHERE: dict[str, str] = {
    "tidemill/demo/cli.py": "tests/integration/test_demo.py",
    "tidemill/demo/load.py": "tests/integration/test_pipeline_crash.py",
    "tidemill/demo/pipeline.py": "tests/integration/test_pipeline_crash.py",
}
"""Modules without a mirrored test, with the test that would fail without them; may only shrink."""

PURE = (
    "core/types.py",
    "core/errors.py",
    "core/wire",
    "core/records",
    "core/client/metadata.py",
    "broker/fetch_sessions.py",
    "broker/quorum/batches.py",
    "broker/quorum/image.py",
    "broker/quorum/metadata.py",
    "broker/quorum/records.py",
    "broker/quorum/shared_map.py",
    "broker/quorum/snapshot.py",
    "broker/groups/commits.py",
    "broker/groups/deadlines.py",
    "broker/groups/events.py",
    "broker/groups/identity.py",
    "broker/groups/joining.py",
    "broker/groups/machine.py",
    "broker/groups/membership.py",
    "broker/groups/offsets.py",
    "broker/groups/records.py",
    "broker/groups/rounds.py",
    "broker/groups/states.py",
    "broker/groups/subscription.py",
    "broker/groups/table.py",
    "broker/groups/topics.py",
    "broker/log/producers.py",
    "broker/log/cleanable.py",
    "connect/herder/commands.py",
    "connect/herder/events.py",
    "connect/herder/machine.py",
    "connect/herder/offsets.py",
    "connect/herder/state.py",
    "connect/stores.py",
    "connect/tasks/source_machine.py",
    "connect/plugins/postgres/pgoutput.py",
    "connect/plugins/postgres/progress.py",
    "mirror/passthrough.py",
    "mirror/offsets.py",
    "mirror/naming.py",
    "mirror/formats.py",
    "mirror/link.py",
)
IMPURE_IMPORTS = {
    "asyncio",
    "socket",
    "time",
    "random",
    "os",
    "threading",
    "selectors",
    "psycopg",
    "grpc",
    "logging",
    "structlog",
}
CODE_GENERATORS = {"core/wire/generate.py", "core/wire/schema.py"}
"""Programs run by developers, inside an otherwise pure package."""


def files(folder: str) -> list[Path]:
    """Every Python file below a folder; links to other folders are not followed."""
    return sorted((ROOT / folder).rglob("*.py"))


def product_files() -> list[Path]:
    """Every Python file that ships, generated ones left out."""
    found = (path for package in PACKAGES for path in files(package))
    return [path for path in found if not GENERATED.search(path.relative_to(ROOT).as_posix())]


def name(path: Path) -> str:
    """The path as failures show it."""
    return path.relative_to(ROOT).as_posix()


def dotted_name(path: Path) -> str:
    """The name a module is imported by: every part is reached through its link inside `tidemill`."""
    dotted = name(path).removesuffix(".py").replace("/", ".")
    return dotted if dotted.startswith("tidemill.") else f"tidemill.{dotted}"


@functools.cache
def tree(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of a file."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def code_lines(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring, comments and blank lines."""
    first = node.body[0]
    start = node.lineno
    doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    skipped = set(range(first.lineno, (first.end_lineno or first.lineno) + 1)) if doc else set()
    lines = path.read_text(encoding="utf-8").splitlines()
    body = range(start, (node.end_lineno or start) + 1)
    return sum(
        1 for i in body if i not in skipped and lines[i - 1].strip() and not lines[i - 1].strip().startswith("#")
    )


def report(problems: list[str]) -> None:
    """Fail with every problem on a line of its own."""
    assert not problems, "\n" + "\n".join(problems)


def test_every_module_opens_with_its_idea() -> None:
    problems = []
    for path in product_files():
        doc = ast.get_docstring(tree(path))
        first = doc.splitlines()[0] if doc else ""
        if not doc:
            problems.append(f"{name(path)}:1: rule 20: no module docstring")
        elif len(first) > DOCSTRING_FIRST_LINE_MAX:
            problems.append(f"{name(path)}:1: rule 20: first line has {len(first)} characters")
    report(problems)


def test_functions_and_files_stay_small() -> None:
    problems = []
    for path in product_files():
        count = len(path.read_text(encoding="utf-8").splitlines())
        if count > FILE_LINES_MAX:
            problems.append(f"{name(path)}:1: rule 8: {count} lines in one file")
        for node in functions(path):
            size = code_lines(path, node)
            if size > FUNCTION_LINES_MAX and f"{name(path)}:{node.name}" not in LONG_FUNCTIONS:
                problems.append(f"{name(path)}:{node.lineno}: rule 8: {node.name} has {size} code lines")
    report(problems)


def test_no_drawer_modules() -> None:
    problems = [f"{name(path)}:1: rule 7: a drawer" for path in product_files() if path.stem.strip("_") in DRAWERS]
    report(problems)


def test_functions_say_what_they_return() -> None:
    report(
        [
            f"{name(path)}:{node.lineno}: types: {node.name} has no return annotation"
            for path in product_files()
            for node in functions(path)
            if node.returns is None
        ]
    )


def test_tasks_have_an_owner() -> None:
    problems = []
    for path in product_files():
        for node in ast.walk(tree(path)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = ast.unparse(node.func.value)
            if node.func.attr == "ensure_future" or (node.func.attr == "create_task" and owner in ("asyncio", "loop")):
                problems.append(f"{name(path)}:{node.lineno}: rule 19: {ast.unparse(node.func)} outside a TaskGroup")
    report(problems)


def test_machines_know_no_world() -> None:
    problems = []
    for path in product_files():
        if not name(path).startswith(PURE) or name(path) in CODE_GENERATORS:
            continue
        for node in ast.walk(tree(path)):
            modules: list[str] = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            problems += [
                f"{name(path)}:{node.lineno}: rule 1: a machine imports {module}"
                for module in modules
                if module.split(".")[0] in IMPURE_IMPORTS
            ]
    report(problems)


def test_clock_and_randomness_come_by_constructor() -> None:
    banned = re.compile(r"^(time\.(time|monotonic|time_ns|monotonic_ns)|random\.\w+|os\.urandom)$")
    problems = []
    for path in product_files():
        if not name(path).startswith(("core/", "broker/", "mirror/")) or name(path).startswith("core/runtime/"):
            continue
        calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        problems += [
            f"{name(path)}:{call.lineno}: rule 18: {ast.unparse(call.func)} outside core/runtime"
            for call in calls
            if banned.match(ast.unparse(call.func))
        ]
    report(problems)


def test_machine_dataclasses_are_frozen() -> None:
    problems = []
    for path in product_files():
        if not name(path).startswith(PURE):
            continue
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ClassDef):
                continue
            decorators = [ast.unparse(each) for each in node.decorator_list]
            if any(text.startswith("dataclass") and "slots=True" not in text for text in decorators):
                problems.append(f"{name(path)}:{node.lineno}: rule 11: {node.name} is not slotted")
    report(problems)


def test_pydantic_stays_at_the_edges() -> None:
    report(
        [
            f"{name(path)}:1: rule 12: pydantic in {path.parts[-2]}"
            for path in product_files()
            if name(path).startswith(("core/", "broker/", "mirror/")) and "pydantic" in path.read_text(encoding="utf-8")
        ]
    )


def test_handlers_list_their_versions() -> None:
    handlers = [
        path for path in product_files() if name(path).startswith("broker/handlers/") and path.stem != "__init__"
    ]
    report(
        [
            f"{name(path)}:1: rule 22: the docstring does not list versions"
            for path in handlers
            if "ersion" not in (ast.get_docstring(tree(path)) or "")
        ]
    )


FOREIGN_LOGGERS = {"py4j"}
"""Loggers of libraries that we quieten."""


def test_loggers_carry_the_prefix() -> None:
    problems = []
    for path in product_files():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("structlog.get_logger", "logging.getLogger"):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and str(first.value).split(".")[0] == "tidemill":
                    continue
                if name(path) == "connect/loggers.py" or (first is None and "logging" in ast.unparse(node.func)):
                    continue  # admin/loggers addresses loggers by the user's word; the root logger has no name
                if isinstance(first, ast.Constant) and first.value in FOREIGN_LOGGERS:
                    continue
                problems.append(f"{name(path)}:{node.lineno}: guard 6: logger without the tidemill prefix")
    report(problems)


def test_nothing_is_left_over() -> None:
    marker = re.compile(r"\b(FIXME|TO" + r"DO|XXX|breakpoint\(\)|NotImplementedError)\b")
    problems = [
        f"{name(path)}:{number}: left over: {line.strip()}"
        for path in product_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marker.search(line)
    ]
    report(problems)


def test_parts_are_imported_through_the_one_namespace() -> None:
    """In a checkout the folders lie on the path, so that a bare `import core` works there and nowhere else."""
    parts = set(PACKAGES) - {"tidemill"}
    everything = (path for folder in (*PACKAGES, "tests", "benchmarks", "docs", "examples") for path in files(folder))
    report(
        [
            f"{name(path)}: one namespace: import tidemill.{dotted} instead of {dotted}"
            for path in everything
            for dotted in imported_by(path, absolute_only=True)
            if dotted.split(".")[0] in parts
        ]
    )


def test_every_part_is_linked_and_shipped() -> None:
    for part in sorted(set(PACKAGES) - {"tidemill"}):
        assert (ROOT / "tidemill" / part).readlink() == Path("..", part)
        assert f'{part} = "tidemill/{part}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_module_has_its_test() -> None:
    problems = []
    for path in product_files():
        if path.stem in ("__init__", "__main__"):
            continue
        if name(path) in COVERED_ELSEWHERE:
            if not (ROOT / COVERED_ELSEWHERE[name(path)]).exists():
                problems.append(f"{name(path)}:1: rule 23: {COVERED_ELSEWHERE[name(path)]} does not exist")
            continue
        mirrored = ROOT / "tests" / path.parent.relative_to(ROOT)
        if not list(mirrored.glob(f"test_{path.stem}*.py")):
            problems.append(f"{name(path)}:1: rule 23: no tests/{name(path.parent)}/test_{path.stem}.py")
    report(problems)


def imported_by(path: Path, *, absolute_only: bool = False) -> Iterator[str]:
    """Dotted names a file imports: of modules, and of what might be a module inside a package."""
    package = dotted_name(path).split(".")[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not (absolute_only and node.level):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def test_no_module_is_unreachable() -> None:
    everything = [path for folder in (*PACKAGES, "benchmarks", "docs") for path in files(folder)]
    imported = {dotted for path in everything for dotted in imported_by(path)}
    named = (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # entry points and forced files
    programs = "\n".join(
        path.read_text(encoding="utf-8") for path in product_files()
    )  # python -m tidemill.connect.remote.guardian
    problems = []
    for path in product_files():
        dotted = dotted_name(path)
        if path.stem in ("__init__", "__main__") or dotted in imported:
            continue
        if dotted in named or name(path) in named or f'"{dotted}"' in programs or f"-m {dotted}" in programs:
            continue
        problems.append(f"{name(path)}:1: nobody imports it")
    report(problems)


@pytest.mark.parametrize("word", ["pypi.org", "/root/", "/work/", "/home/"])
def test_no_place_of_one_machine_is_named(word: str) -> None:
    texts = [
        *product_files(),
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "pyproject.toml",
        ROOT / "Makefile",
    ]
    report(
        [f"{name(path)}: names {word}" for path in texts if path.exists() and word in path.read_text(encoding="utf-8")]
    )
