"""Histories on disk, and the values of records"""

from pathlib import Path

import pytest

from tests.faults.history import Event, Log, names, parse, places, read, value, words


def test_what_is_put_is_read(tmp_path: Path) -> None:
    log = Log(tmp_path / "h")
    log.put("writer", "w1", 1)
    log.put("w", "t", 2, 7)
    log.put("a", "t", 2, 7, 40)
    log.reason("x", "t", 2, 8, "it did not work")
    log.reason("e", "")
    log.close(3)
    found = list(read(tmp_path / "h"))
    assert [event.kind for event in found] == ["writer", "w", "a", "x", "e", "end"]
    moments = [event.at for event in found]
    assert moments == sorted(moments)
    assert found[2] == Event("a", moments[2], ("t", 2), 7, 40)
    assert found[3].reason == "it_did_not_work"
    assert found[5].number == 3
    assert names(tmp_path / "h") == ("writer", "w1")


def test_a_line_that_was_cut_off_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("reader 1.0 g one\nr 2.0 t 0 5 w1 9\nr 3.0 t 0 6 w1 1")
    assert [event.offset for event in read(tmp_path / "h")] == [-1, 5]
    assert names(tmp_path / "h") == ("reader", "g")


@pytest.mark.parametrize("line", ["q 1.0 t", "a 1.0 t 0 1"])
def test_what_is_no_line_of_a_history_is_refused(line: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse(line)


def test_a_record_says_who_wrote_it() -> None:
    assert words(value("writer-1", 42)) == "writer-1 42"
    assert parse(f"r 1.0 t 0 3 {words(value('w', 5))}") == Event("r", 1.0, ("t", 0), 5, 3, "w")


@pytest.mark.parametrize("data", [None, b"", b"nonsense", b"w:x .", b":", b"\xff\xfe"])
def test_a_record_of_somebody_else_is_nobodys(data: bytes | None) -> None:
    assert words(data) == "? 0"


def test_places_are_all_partitions() -> None:
    assert places({"a": 2, "b": 1}.items()) == [("a", 0), ("a", 1), ("b", 0)]
