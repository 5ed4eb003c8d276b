"""The file plugins"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import ConverterSpec, Fatal, InvalidConfig, Poison, Record, TaskContext
from tidemill.connect.loader import Plugins
from tidemill.connect.plugins import file as plugin
from tidemill.connect.plugins.file import FileSink, FileSinkSettings, FileSource, FileSourceSettings
from tidemill.connect.settings import parse_settings


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "IDLE_S", 0)


def context(offset: Mapping[str, Any] | None = None, problems: dict[str, str | None] | None = None) -> TaskContext:
    text = ConverterSpec(kind="string")
    said: dict[str, str | None] = {} if problems is None else problems

    def say(about: str, message: str | None, *, retry_s: float | None = None) -> None:
        said[about] = message

    return TaskContext(
        connector="c",
        task=0,
        config={},
        bootstrap_servers="",
        client_config={},
        key_converter=text,
        value_converter=text,
        offsets=lambda partition: offset,
        stopping=lambda: False,
        report=lambda facts: None,
        problem=say,
    )


def source(
    path: Path, *, at: int | None = None, batch: int = 2000, problems: dict[str, str | None] | None = None
) -> FileSource:
    task = FileSource(FileSourceSettings.model_validate({"file": str(path), "topic": "t", "batch.size": batch}))
    task.start(context(None if at is None else {"position": at}, problems))
    return task


def poll(task: FileSource) -> list[Any]:
    return [record.value for record in task.poll() if isinstance(record, Record)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in.txt"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


# --------------------------------------------------------------------- source


def test_lines_become_records_as_kafkas_example_makes_them(path: Path) -> None:
    append(path, b"one\ntwo\r\n")
    first, second = source(path).poll()
    assert isinstance(first, Record)
    assert isinstance(second, Record)
    assert (first.topic, first.key, first.value) == ("t", None, "one")
    assert (first.partition, first.offset) == ({"filename": str(path)}, {"position": 4})
    assert (second.value, second.offset) == ("two", {"position": 9})


def test_a_file_is_followed_as_it_grows(path: Path) -> None:
    task = source(path)
    assert poll(task) == []
    append(path, b"a\nb")
    assert poll(task) == ["a"]
    assert poll(task) == []
    append(path, b"c\n\n")
    assert poll(task) == ["bc", ""]
    path.unlink()
    assert poll(task) == []
    task.stop()


def test_a_file_that_is_not_there_is_a_problem_until_it_is(path: Path) -> None:
    problems: dict[str, str | None] = {}
    task = source(path, problems=problems)
    assert poll(task) == []
    (said,) = problems.values()
    assert said is not None and f"the file {path} does not exist (yet)" in said
    append(path, b"one\n")
    assert poll(task) == ["one"]
    assert set(problems.values()) == {None}


def test_a_file_that_went_away_while_it_was_read_is_a_problem_until_it_is_back(path: Path) -> None:
    problems: dict[str, str | None] = {}
    append(path, b"one\n")
    task = source(path, problems=problems)
    assert poll(task) == ["one"]
    assert poll(task) == []
    old = path.rename(path.with_suffix(".1"))
    assert poll(task) == []
    assert [said for said in problems.values() if said and str(path) in said]
    old.rename(path)
    assert poll(task) == []
    assert set(problems.values()) == {None}


def test_a_file_that_rests_is_only_looked_at(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, b"one\nrest")
    task = source(path)
    assert poll(task) == ["one"]
    assert poll(task) == []
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", None)
        assert [poll(task) for _ in range(3)] == [[], [], []]
    append(path, b" of it\n")
    assert poll(task) == ["rest of it"]
    assert poll(task) == []
    path.write_bytes(b"new\n")
    assert poll(task) + poll(task) == ["new"], "truncated"
    assert poll(task) == []
    path.unlink()
    assert poll(task) == []
    path.write_bytes(b"as\n\n")
    assert poll(task) + poll(task) == ["as", ""], "another one"


def test_reading_goes_on_from_the_stored_position(path: Path) -> None:
    append(path, b"one\ntwo\nthree\n")
    assert poll(source(path, at=4)) == ["two", "three"]


def test_a_batch_is_no_larger_than_asked(path: Path) -> None:
    append(path, b"1\n2\n3\n4\n5\n")
    task = source(path, batch=2)
    assert [poll(task) for _ in range(3)] == [["1", "2"], ["3", "4"], ["5"]]


def test_a_truncated_file_is_read_again(path: Path) -> None:
    append(path, b"one\ntwo\nrest")
    task = source(path)
    assert poll(task) == ["one", "two"]
    path.write_bytes(b"new\n")
    assert poll(task) == []
    assert poll(task) == ["new"]


def test_a_replaced_file_is_read_to_its_end_first(path: Path) -> None:
    append(path, b"one\n")
    task = source(path)
    assert poll(task) == ["one"]
    old = path.rename(path.with_suffix(".1"))
    append(old, b"two\nlast words")
    assert poll(task) == ["two"]
    assert poll(task) == [], "the new file is not there yet"
    append(path, b"new\n")
    assert poll(task) == ["last words"]
    (record,) = task.poll()
    assert isinstance(record, Record)
    assert (record.value, record.offset) == ("new", {"position": 4})


def test_a_file_that_shrank_while_nobody_looked_is_read_from_its_beginning(path: Path) -> None:
    append(path, b"new\n")
    assert poll(source(path, at=100)) == ["new"]


def test_bytes_that_are_no_text_do_not_stop_it(path: Path) -> None:
    append(path, b"\xff\n\xc3\xa9\n")
    assert poll(source(path)) == ["\ufffd", "é"]


def test_a_line_without_end_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "LINE_BYTES_MAX", 1000)
    append(path, b"x" * 2000)
    with pytest.raises(Poison, match="has a line of more than 1000 bytes at 0"):
        poll(source(path))


@pytest.mark.parametrize("offset", [{}, {"position": "x"}, {"position": -1}])
def test_a_strange_offset_is_refused(path: Path, offset: dict[str, Any]) -> None:
    task = FileSource(FileSourceSettings(file=str(path), topic="t"))
    with pytest.raises(Fatal, match="is not a position"):
        task.start(context(offset))


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="cannot read"):
        poll(source(tmp_path))


@given(st.lists(st.binary(max_size=6).filter(lambda line: b"\n" not in line), max_size=12), st.data())
def test_any_cut_gives_the_same_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], data: Any) -> None:
    """However the file grows and wherever reading was interrupted, every line comes once."""
    path = tmp_path_factory.mktemp("cuts") / "in.txt"
    content = b"".join(line + b"\n" for line in lines)
    position, written = 0, 0
    found: list[Any] = []
    while position < len(content):
        end = data.draw(st.integers(written, len(content)))
        append(path, content[written:end])
        written = end
        task = source(path, at=position, batch=data.draw(st.integers(1, 5)))
        for record in task.poll():
            assert isinstance(record, Record)
            assert record.offset is not None
            position = record.offset["position"]
            found.append(record.value)
        task.stop()
        if end == len(content) and position < end:
            continue
    assert found == [line.removesuffix(b"\r").decode("utf-8", "replace") for line in lines]


# ----------------------------------------------------------------------- sink


def test_values_become_lines(path: Path) -> None:
    sink = FileSink(FileSinkSettings(file=str(path)))
    sink.start(context())
    sink.put([Record(value=each) for each in ("é", b"\xff", {"a": [1]}, None, 7)])
    sink.flush()
    assert path.read_bytes() == "é\n".encode() + b'\xff\n{"a":[1]}\nnull\n7\n'
    sink.stop()
    again = FileSink(FileSinkSettings(file=str(path)))
    again.start(context())
    again.put([Record(value="more")])
    again.stop()
    assert path.read_bytes().endswith(b"7\nmore\n"), "a restart appends"


def test_a_flush_reaches_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    sink = FileSink(FileSinkSettings(file=str(path)))
    sink.flush()
    sink.start(context())
    sink.put([Record(value="x")])
    sink.flush()
    assert len(synced) == 1
    assert path.read_bytes() == b"x\n"
    sink.stop()


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="cannot write to"):
        FileSink(FileSinkSettings(file=str(tmp_path / "missing" / "out"))).start(context())


# ------------------------------------------------------------------ as plugins


@pytest.mark.parametrize("kind", ["Source", "Sink"])
def test_they_answer_to_kafkas_names(kind: str) -> None:
    plugins = Plugins.installed()
    names = (
        f"org.apache.kafka.connect.file.FileStream{kind}Connector",
        f"FileStream{kind}Connector",
        f"FileStream{kind}",
    )
    (found,) = {id(plugins.find(name)): plugins.find(name) for name in names}.values()
    assert found.kind == kind.lower()


def test_kafkas_configuration_is_understood() -> None:
    settings = parse_settings(plugin.file_source, {"name": "n", "file": "f", "topic": "t", "batch.size": "7"})
    assert settings == FileSourceSettings.model_validate({"file": "f", "topic": "t", "batch.size": 7})


def test_preflights(tmp_path: Path) -> None:
    assert plugin.file_source.check is not None
    assert plugin.file_sink.check is not None
    plugin.file_source.check(FileSourceSettings(file=str(tmp_path / "later"), topic="t"))
    plugin.file_sink.check(FileSinkSettings(file=str(tmp_path / "later")))
    with pytest.raises(InvalidConfig, match="is a directory"):
        plugin.file_source.check(FileSourceSettings(file=str(tmp_path), topic="t"))
    with pytest.raises(InvalidConfig, match="is a directory"):
        plugin.file_sink.check(FileSinkSettings(file=str(tmp_path)))
    with pytest.raises(InvalidConfig, match="is not writable"):
        plugin.file_sink.check(FileSinkSettings(file=str(tmp_path / "missing" / "out")))
