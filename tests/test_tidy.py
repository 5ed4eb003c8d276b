"""House rules that a machine can check

One pass over the syntax tree of every product file. A failure reads `path:line: rule: why`. The lists of exceptions
may only shrink.
"""

import ast
import configparser
import functools
import gc
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
    "tidemill/demo/load.py": "tests/integration/test_pipeline_crash.py",
}
"""Modules without a mirrored test, with the test that would fail without them; may only shrink."""

NOT_STARTED_YET: frozenset[str] = frozenset()
"""Modules that only their tests start so far, each with what it waits for; may only shrink."""

MACHINES = "importlinter:contract:pure-machines"
"""The contract in `.importlinter` that lists the modules which know no world, and what they may not import."""

PRIVATE_NAMES: dict[str, int] = {
    "tests/broker/coordination/test_deadlines.py": 1,
    "tests/broker/handlers/test_produce.py": 7,
    "tests/broker/handlers/test_produce_memo.py": 4,
    "tests/broker/handlers/test_produce_several.py": 5,
    "tests/broker/quorum/test_controller.py": 1,
    "tests/connect/plugins/postgres/test_transport.py": 1,
    "tests/connect/plugins/postgres/types/test_temporal.py": 1,
    "tests/connect/remote/test_host.py": 1,
    "tests/connect/remote/test_process_facts.py": 1,
    "tests/connect/tasks/test_dead_letters.py": 1,
    "tests/connect/tasks/test_sink.py": 4,
    "tests/connect/tasks/test_source_failures.py": 4,
    "tests/core/wire/test_codec.py": 1,
    "tests/mirror/test_flow.py": 2,
    "tests/mirror/test_map_store.py": 6,
    "tests/sim/test_disk.py": 4,
    "tests/spark_sink/tables/test_delta.py": 2,
    "tests/spark_sink/test_envelope.py": 3,
    "tests/spark_sink/test_standstill.py": 2,
}
"""How often a test file reaches for a private name of others; may only shrink."""


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
    text = path.read_text(encoding="utf-8")
    collecting = gc.isenabled()
    gc.disable()  # what a finalizer logs has its traceback parsed, and 3.11 cannot parse inside parsing (gh-106905)
    try:
        return ast.parse(text)
    finally:
        if collecting:
            gc.enable()


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


@functools.cache
def listed(key: str) -> tuple[str, ...]:
    """The modules of the contract about machines, under one of its two keys."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter", encoding="utf-8")
    return tuple(contracts[MACHINES][key].split())


def is_machine(path: Path) -> bool:
    """Whether a file is, or lies in, one of the modules that know no world."""
    dotted = dotted_name(path)
    return any(dotted == module or dotted.startswith(f"{module}.") for module in listed("source_modules"))


def test_machines_know_no_world() -> None:
    """As the import contract says it, for whoever runs the tests only."""
    banned = set(listed("forbidden_modules"))
    report(
        [
            f"{name(path)}: rule 1: a machine imports {module}"
            for path in product_files()
            if is_machine(path)
            for module in imported_by(path)
            if module.split(".")[0] in banned
        ]
    )


def test_what_calls_itself_pure_is_held_to_it() -> None:
    report(
        [
            f"{name(path)}:1: rule 1: calls itself pure and is not listed in .importlinter"
            for path in product_files()
            if path.stem != "__init__"  # which speaks of several modules
            if re.search(r"\bPure\b", ast.get_docstring(tree(path)) or "") and not is_machine(path)
        ]
    )


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


def test_data_of_machines_is_frozen_or_says_that_it_is_not() -> None:
    """Events, actions and records are values. State that is changed in place has "Mutable" as its first word."""
    problems = []
    for path in filter(is_machine, product_files()):
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ClassDef):
                continue
            decorators = [text for text in map(ast.unparse, node.decorator_list) if text.startswith("dataclass")]
            place = f"{name(path)}:{node.lineno}: rule 11: {node.name}"
            if any("slots=True" not in text for text in decorators):
                problems.append(f"{place} is not slotted")
            if any("frozen=True" in text for text in decorators):
                problems += [f"{place}.{field} can be changed in place" for field in changeable_fields(node)]
            elif decorators and not (ast.get_docstring(node) or "").startswith("Mutable"):
                problems.append(f"{place} is not frozen, and does not begin with Mutable")
    report(problems)


def changeable_fields(node: ast.ClassDef) -> list[str]:
    """Fields of a dataclass whose values are no values."""
    return [
        ast.unparse(field.target)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and ast.unparse(field.annotation).split("[")[0] in ("list", "dict", "set", "bytearray", "deque", "OrderedDict")
    ]


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
NAMED_BY_OTHERS = {  # admin/loggers addresses loggers by the user's word, a task's process its plugin's by its module
    "connect/loggers.py",
    "connect/remote/log_lines.py",
}
"""Loggers of libraries that we quieten."""


def test_loggers_carry_the_prefix() -> None:
    problems = []
    for path in product_files():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("structlog.get_logger", "logging.getLogger"):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and str(first.value).split(".")[0] == "tidemill":
                    continue
                if name(path) in NAMED_BY_OTHERS or (first is None and "logging" in ast.unparse(node.func)):
                    continue  # the root logger has no name
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
        if path.stem in ("__init__", "__main__") or dotted in imported or name(path) in NOT_STARTED_YET:
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


PUBLIC_ALL_THE_SAME = {"_replace", "_asdict", "_make", "_fields", "_exit"}
"""Of named tuples, and of `os`."""

NOT_OTHERS = {"self", "cls", "super()", "KafkaError"}
"""Whose private names a test may use: its own, and librdkafka's error codes, which begin with a line."""


def private_names(path: Path) -> Iterator[str]:
    """Private names of others that a test reaches for: as an attribute, as a text to patch, or by importing them."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in NOT_OTHERS:
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("attr", "patch", "patch.object")):
            names = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        else:
            continue
        last = [each.rpartition(".")[2] for each in names]
        yield from (each for each in last if re.match(r"_[a-zA-Z]", each) and each not in PUBLIC_ALL_THE_SAME)


def test_tests_reach_for_what_is_public() -> None:
    counts = {name(path): sum(1 for _ in private_names(path)) for path in files("tests")}
    found = {path: count for path, count in counts.items() if count}
    more = [
        f"{path}: {count} private names instead of {PRIVATE_NAMES.get(path, 0)}: {sorted(private_names(ROOT / path))}"
        for path, count in found.items()
        if count > PRIVATE_NAMES.get(path, 0)
    ]
    report(more)
