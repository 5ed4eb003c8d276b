"""What a new project consists of, and which names it may have."""

import ast
import builtins
import json
import tomllib

import pytest

from tidemill.new_project import TAKEN, BadName, files_of

KINDS = ("source", "sink", "transform")


@pytest.mark.parametrize("kind", KINDS)
def test_one_name_makes_all_others(kind: str) -> None:
    files = files_of(kind, "web-orders")
    assert set(files) == {"pyproject.toml", "web_orders.py", "test_web_orders.py", "web-orders.json", "README.md"}
    project = tomllib.loads(files["pyproject.toml"])["project"]
    group = "tidemill.transforms" if kind == "transform" else "tidemill.plugins"
    assert project["entry-points"] == {group: {"web-orders": "web_orders:web_orders"}}
    connector = json.loads(files["web-orders.json"])
    assert connector["name"] == "web-orders" and "WebOrders" in connector["config"].values()
    assert all("$" not in text for text in files.values())
    assert files["README.md"].startswith("# web-orders\n")


@pytest.mark.parametrize("kind", KINDS)
def test_no_accepted_name_hides_one_that_the_module_needs(kind: str) -> None:
    tree = ast.parse(files_of(kind, "web-orders")["web_orders.py"])
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and hasattr(builtins, node.id)}
    names |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} - {"web_orders"}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    for name in names:
        with pytest.raises(BadName):
            files_of(kind, name.replace("_", "-"))


@pytest.mark.parametrize("kind", KINDS)
def test_no_accepted_name_is_hidden_by_one_of_the_test(kind: str) -> None:
    tree = ast.parse(files_of(kind, "web-orders")["test_web_orders.py"])
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    for name in names - {"web_orders"}:
        with pytest.raises(BadName):
            files_of(kind, name.replace("_", "-"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "small letters"),
        ("WebOrders", "small letters"),
        ("web_orders", "such as web-orders"),
        ("9lives", "small letters"),
        ("web--orders", "small letters"),
        ("-x", "small letters"),
        ("../orders", "small letters"),
        ("a\n", "small letters"),
        ("a" * 61, "60 characters"),
        ("class", "a word of Python"),
        ("match", "a word of Python"),
        ("print", "a word of Python"),
        ("test-orders", "pytest needs"),
        ("conftest", "pytest needs"),
        ("queue", "'queue' that is installed"),
        ("pydantic", "'pydantic' that is installed"),
        ("tidemill", "'tidemill' that is installed"),
        *((name.replace("_", "-"), "take a longer one") for name in sorted(TAKEN)),
    ],
)
def test_names_that_cannot_be(name: str, says: str) -> None:
    with pytest.raises(BadName, match=says):
        files_of("source", name)
