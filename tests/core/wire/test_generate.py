"""The generated modules are those the schemas describe"""

from pathlib import Path

import pytest

from tidemill.core.wire import generate
from tidemill.core.wire.messages.fetch import SINCE as FETCH_SINCE
from tidemill.core.wire.schema import load_schemas, parse_field


def test_the_files_on_disk_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_check_names_what_differs_and_a_run_repairs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "WIRE_DIRECTORY", tmp_path)
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (tmp_path / "messages" / "fetch.py").write_text("changed")
    (tmp_path / "messages" / "forgotten.py").write_text("")
    (tmp_path / "messages" / "produce.py").unlink()
    assert generate.main(["--check"]) == 1
    says = "out of date: messages/fetch.py, messages/forgotten.py, messages/produce.py;"
    assert says in capsys.readouterr().err
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    assert not (tmp_path / "messages" / "forgotten.py").exists()


@pytest.mark.parametrize(
    ("line", "annotation", "default"),
    [
        ("a int32 = -1", "int", "-1"),
        ("a string 4+ null = null", "str | None", "None"),
        ("a []Thing null", "tuple[Thing, ...] | None", "()"),
        ("a records null = empty", "memoryview | bytes | None", "b''"),
        ("a uuid", "uuid.UUID", "ZERO_UUID"),
        ("a Thing", "Thing", "Thing()"),
        ("a string = x", "str", '"x"'),
        ("a bool = true", "bool", "True"),
    ],
)
def test_types_and_defaults_of_fields(line: str, annotation: str, default: str) -> None:
    schema = next(iter(load_schemas()))
    field = parse_field(line, schema.versions)
    assert generate.python_type(field) == annotation
    assert generate.default_text(field) == default


def test_the_table_lists_every_api_in_order_of_key() -> None:
    text = generate.table_source(load_schemas())
    assert text.index('(0, "Produce", "produce", 3, 13, 9)') < text.index('(1, "Fetch", "fetch", 4, 18, 12)')


def test_an_api_with_rows_says_when_its_fields_began() -> None:
    assert FETCH_SINCE["FetchTopic.topic_id"] == 13
    assert "FetchTopic.topic" not in FETCH_SINCE
    found = {schema.name for schema in load_schemas() if "SINCE" in generate.messages_source(schema)}
    assert found == {"Fetch", "Produce"}
