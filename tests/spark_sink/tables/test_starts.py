"""Positions that wait for a table"""

from pathlib import Path

import pytest

from tidemill.spark_sink.tables.starts import Starts, is_remote, local_folder


@pytest.mark.parametrize("sink", ["wh", "a/b c", "..", "ä"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_is_written_is_read_until_it_is_removed(tmp_path: Path, sink: str, scheme: str) -> None:
    path = f"{scheme}{tmp_path}/t"
    starts = Starts(path, sink)
    assert starts.read() == {}
    starts.write({"wh/t-0": 5})
    starts.write({"wh/t-0": 5, "wh/t-1": 7})
    assert Starts(path, sink).read() == {"wh/t-0": 5, "wh/t-1": 7}
    (file,) = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert file.parent == tmp_path / "t" / "_tidemill"
    starts.remove()
    starts.remove()
    assert starts.read() == {}
    assert not file.parent.exists()


def test_jobs_have_files_of_their_own(tmp_path: Path) -> None:
    one, two = Starts(str(tmp_path), "one"), Starts(str(tmp_path), "two")
    one.write({"a": 1})
    two.write({"a": 2})
    one.remove()
    assert two.read() == {"a": 2}


def test_where_a_table_is() -> None:
    assert is_remote("s3://bucket/t")
    assert not is_remote("file:///t") and not is_remote("/t")
    assert local_folder("file:///a/b") == Path("/a/b")
