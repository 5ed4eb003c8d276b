"""What is told before a job starts"""

from pathlib import Path

import pytest

from tidemill.spark_sink.config import parse_job
from tidemill.spark_sink.preflight import problems_of

LEAST = {"bootstrap.servers": "127.0.0.1:1", "topics": "a", "kafka.client.id": "x"}


def problems(table: Path | str, **more: str) -> list[str]:
    settings = {**LEAST, "table.path": str(table), **{name.replace("__", "."): value for name, value in more.items()}}
    return problems_of(parse_job(settings))


@pytest.mark.java
def test_nothing_stands_in_the_way(tmp_path: Path) -> None:
    assert problems(tmp_path / "t") == []


def test_everything_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "file").write_text("")
    found = " | ".join(problems(tmp_path / "file" / "{table}", columns="id:money", kafka__nonsense="1"))
    for part in ("nonsense", "unknown type 'money'", "only placeholder is {topic}", "not a folder", "needs Java 17"):
        assert part in found


def test_a_checkpoint_folder_that_cannot_be_made_is_told_before_spark_starts(tmp_path: Path) -> None:
    def told(location: str) -> list[str]:
        found = problems(tmp_path / "t", checkpoint__location=location)
        return [each for each in found if each.startswith("checkpoint.location")]

    (tmp_path / "file").write_text("")
    place = str(tmp_path / "file" / "checkpoint")
    for location in (place, f"file://{place}"):
        why = f"{tmp_path / 'file'} is not a folder"
        assert told(location) == [f"checkpoint.location {location!r} cannot be used: {why}"]
    assert told(str(tmp_path / "new" / "checkpoint")) == []
    assert told("hdfs://nowhere/checkpoint") == []


def test_two_topics_do_not_share_a_table(tmp_path: Path) -> None:
    (found,) = [each for each in problems(tmp_path / "t", topics="a, b") if "topics" in each]
    assert "2 topics would overwrite each other's rows of equal key; put {topic} into it" in found
    for fine in (
        problems(tmp_path / "{topic}", topics="a,b"),
        problems(tmp_path / "t", topics="a,a"),
        problems(tmp_path / "t", topics="a,b", mode="append"),
    ):
        assert not [each for each in fine if "topics" in each]


def test_spark_submit_brings_its_own_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert problems(tmp_path / "t") == []
