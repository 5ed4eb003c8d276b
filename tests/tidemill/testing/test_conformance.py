"""The conformance kit: right plugins pass, and each planted fault is caught under its name."""

import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from tidemill import (
    EncodedBatch,
    InvalidConfig,
    PartialFailure,
    Plugin,
    PluginKind,
    Pos,
    Record,
    SinkTask,
    SourceOutput,
    SourceTask,
    TaskContext,
    check,
    flush,
    sink,
    source,
)
from tidemill.testing import conformance
from tidemill.testing.conformance import NotConforming


class Settings(BaseModel):
    """Settings of the plugins under test."""

    topic: str = Field(min_length=1, description="Topic to write to")
    rows: int = Field(default=8, description="How many there are")


CONFIG = {"topic": "numbers", "rows": "8"}


@source("Right", version="1.0")
def right(settings: Settings, pos: Pos) -> Iterator[Record]:
    """Counts on from where it was."""
    here = pos.source_partition(topic=settings.topic)
    for number in range(here.get("number", 0), settings.rows):
        yield here.record(topic=settings.topic, value=number, offset={"number": number + 1})


@check(right)
def check_right(settings: Settings) -> None:
    """Refuses one topic."""
    if settings.topic == "forbidden":
        raise InvalidConfig("topic", "It is forbidden.")


def broken(problems: Sequence[conformance.Broken]) -> set[str]:
    return {each.behaviour for each in problems}


def test_a_right_source_conforms() -> None:
    conformance.check_source(right, CONFIG, count=8, wrong={"topic": "forbidden", "rows": "many"})


# ------------------------------------------------------------ planted: settings


def test_settings_without_words_are_caught() -> None:
    class Silent(BaseModel):
        topic: str

    @sink("silent", version="1")
    def silent(settings: Silent, batch: list[Record]) -> None: ...

    found = conformance.problems_of_settings(silent, {"topic": "t"})
    assert broken(found) == {"described", "settings-described"}
    with pytest.raises(NotConforming, match=r"silent does not conform:\n  described: .*\n  settings-described: topic"):
        conformance.check_settings(silent, {"topic": "t"})


def test_a_configuration_that_is_not_accepted_is_told() -> None:
    found = conformance.problems_of_source(right, {"rows": "8"})
    assert [str(each) for each in found if each.behaviour == "settings-accepted"] == [
        "settings-accepted: the configuration of the test: topic: Missing required configuration "
        '"topic" which has no default value.'
    ]
    found = conformance.problems_of_settings(right, {"topic": "forbidden"})
    assert broken(found) == {"settings-accepted"}


def test_wrong_values_that_are_accepted_or_end_in_a_traceback_are_caught() -> None:
    class Careless(BaseModel):
        file: str = Field(description="File")

    def looking(name: str, raises: Exception | None) -> Plugin:
        @sink(name, version="1")
        def made(settings: Careless, batch: list[Record]) -> None:
            """Writes."""

        @check(made)
        def look(settings: Careless) -> None:
            if settings.file == "/missing" and raises is not None:
                raise raises

        return made

    for raises, behaviour in (
        (None, "settings-wrong"),
        (FileNotFoundError("/missing"), "settings-invalid-config"),
        (InvalidConfig("path", "It is not there."), "settings-wrong"),
    ):
        plugin = looking("careless", raises)
        found = conformance.problems_of_settings(plugin, {"file": "/there"}, wrong={"file": "/missing"})
        assert broken(found) == {behaviour}, raises


def test_a_number_that_takes_any_text_is_caught() -> None:
    class Lenient(BaseModel):
        rows: int = Field(default=1, description="Rows")

        def __init__(self, **given: Any) -> None:
            super().__init__(**{name: value for name, value in given.items() if value != "?"})

        @classmethod
        def model_validate(cls, given: Any, **more: Any) -> "Lenient":
            return cls(**given)

    @sink("lenient", version="1")
    def lenient(settings: Lenient, batch: list[Record]) -> None:
        """Writes."""

    assert broken(conformance.problems_of_settings(lenient, {})) == {"settings-wrong"}


# ------------------------------------------------------------- planted: sources


def source_problems(function: Callable[..., Any], **more: Any) -> set[str]:
    function.__doc__ = "A planted fault."
    plugin = source("planted", version="1")(function)
    return broken(conformance.problems_of_source(plugin, CONFIG, count=8, timeout_s=2.0, **more))


def test_a_source_that_skips_after_a_restart_is_caught() -> None:
    def skips(settings: Settings, pos: Pos) -> Iterator[Record]:
        here = pos.source_partition(topic=settings.topic)
        start = here.get("number")
        for number in range(0 if start is None else start + 1, settings.rows):
            yield here.record(topic="t", value=number, offset={"number": number + 1})

    assert source_problems(skips) == {"resumes"}


def test_a_source_that_stores_an_offset_before_its_record_is_caught() -> None:
    """The offset of a page with the first record of it."""

    def early(settings: Settings, pos: Pos) -> Iterator[Record]:
        here = pos.source_partition(topic=settings.topic)
        for page in range(here.get("page", 0), 4):
            for each in range(2):
                yield here.record(topic="t", value=(page * 2 + each), offset={"page": page + 1})

    assert source_problems(early) == {"resumes"}


def test_a_source_that_cannot_read_its_stored_offset_is_caught() -> None:
    def failing(settings: Settings, pos: Pos) -> Iterator[Record]:
        here = pos.source_partition(topic=settings.topic)
        for number in range(int(here.get("number", "0")), settings.rows):
            yield here.record(topic="t", value=number, offset={"number": f"{number}."})

    assert source_problems(failing) == {"resumes"}


def test_a_source_without_offsets_is_caught_unless_it_says_so() -> None:
    def forgets(settings: Settings) -> Iterator[Record]:
        for number in range(settings.rows):
            yield Record(topic="t", value=number)

    assert source_problems(forgets) == {"resumes"}
    assert source_problems(forgets, resumes=False) == set()


def test_a_generator_may_count_on_in_one_map() -> None:
    def mutates(settings: Settings, pos: Pos) -> Iterator[Record]:
        offset = {"number": (pos.get({"p": 1}) or {"number": 0})["number"]}
        for number in range(offset["number"], settings.rows):
            offset["number"] = number + 1
            yield Record(topic="t", value=number, partition={"p": 1}, offset=offset)

    assert source_problems(mutates) == set()


def test_offsets_that_change_after_they_were_returned_are_caught() -> None:
    offset: dict[str, int] = {}

    class Mutating(Numbers):
        def poll(self) -> Sequence[SourceOutput]:
            found = super().poll()
            offset["n"] = self._at
            return [replace(each, offset=offset) for each in found if isinstance(each, Record)]

    assert life_problems(Mutating) == {"offsets-stable"}


@pytest.mark.parametrize("offset", [{"at": {1, 2}}, {"at": (1, 2)}, {1: 2}])
def test_offsets_that_are_no_json_are_caught(offset: Mapping[Any, Any]) -> None:
    def odd(settings: Settings) -> Iterator[Record]:
        for number in range(settings.rows):
            yield Record(topic="t", value=number, partition={"p": 1}, offset=offset)

    assert source_problems(odd) == {"offsets-serialisable"}


def test_an_offset_without_a_partition_is_caught() -> None:
    def lost(settings: Settings) -> Iterator[Record]:
        for number in range(settings.rows):
            yield Record(topic="t", value=number, offset={"n": number})

    assert source_problems(lost) == {"offsets-placed"}


@pytest.mark.parametrize(
    "output",
    [
        Record(value=1),
        Record(topic="", value=1),
        Record(topic="t", value=object()),
        Record(topic="t", key=lambda: 1),
        EncodedBatch(topic="t", keys=[b"k"], values=[b"a", b"b"]),
        EncodedBatch(topic="t", keys=[None, None], values=[b"a", b"b"], timestamps_ms=[1]),
        EncodedBatch(topic="t", keys=["k"], values=[b"a"]),  # type: ignore[list-item]
    ],
    ids=["no topic", "empty topic", "value", "key", "lengths", "timestamps", "text"],
)
def test_outputs_that_nobody_can_write_are_caught(output: SourceOutput) -> None:
    def odd(settings: Settings) -> Iterator[SourceOutput]:
        for _ in range(settings.rows):
            yield output

    assert source_problems(odd, resumes=False) == {"records-valid"}


def test_a_source_that_yields_too_little_or_fails_is_told() -> None:
    def short(settings: Settings) -> Iterator[Record]:
        yield Record(topic="t", value=1)

    def failing(settings: Settings) -> Iterator[Record]:
        yield Record(topic="t", value=1)
        raise ZeroDivisionError

    assert source_problems(short, resumes=False) == {"yields"}
    assert source_problems(failing, resumes=False) == {"yields"}


class Numbers(SourceTask):
    """A right source in the long form, for faults of its life."""

    def __init__(self, settings: Settings) -> None:
        self._rows = settings.rows
        self._at = 0

    def start(self, context: TaskContext) -> None:
        self._at = (context.offsets({"p": 1}) or {"n": 0})["n"]

    def poll(self) -> Sequence[SourceOutput]:
        if self._at == self._rows:
            return []
        self._at += 1
        return [Record(topic="t", value=self._at, partition={"p": 1}, offset={"n": self._at})]


def life_problems(task: Callable[[Settings], SourceTask]) -> set[str]:
    plugin = Plugin(
        name="planted", kind=PluginKind.SOURCE, version="1", config=Settings, task=task, doc="A planted fault."
    )
    return broken(conformance.problems_of_source(plugin, CONFIG, count=8, timeout_s=5.0))


def test_the_long_form_conforms() -> None:
    assert life_problems(Numbers) == set()


def test_a_stop_that_fails_without_a_poll_is_caught() -> None:
    class Unpolled(Numbers):
        def poll(self) -> Sequence[SourceOutput]:
            self.opened = True
            return super().poll()

        def stop(self) -> None:
            assert self.opened

    assert life_problems(Unpolled) == {"start-stop"}


def test_a_stop_that_hangs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "STOP_S", 0.2)
    over = threading.Event()

    class Hanging(Numbers):
        def stop(self) -> None:
            over.wait(20)

    assert {"start-stop", "stop"} <= life_problems(Hanging)
    over.set()


def test_a_poll_after_the_stop_that_hangs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "STOP_S", 0.2)
    over = threading.Event()

    class Waiting(Numbers):
        stopped = False

        def poll(self) -> Sequence[SourceOutput]:
            if self.stopped:
                over.wait(20)
            return super().poll()

        def stop(self) -> None:
            self.stopped = True

    assert life_problems(Waiting) == {"poll-after-stop"}
    over.set()


# --------------------------------------------------------------- planted: sinks


class Table(BaseModel):
    """Settings of the sinks under test."""

    database: str = Field(min_length=1, description="SQLite database file")


def database(settings: Table) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(settings.database)
    connection.execute("CREATE TABLE IF NOT EXISTS t (key TEXT PRIMARY KEY, value TEXT)")
    yield connection
    connection.close()


class Target:
    """The database of one test."""

    def __init__(self, folder: Path) -> None:
        self.config = {"database": str(folder / "t.db")}
        self.records = [Record(key=f"k{n}", value=f"v{n}") for n in range(20)]

    def read(self) -> list[Any]:
        connection = sqlite3.connect(self.config["database"])
        try:
            return [value for (value,) in connection.execute("SELECT value FROM t")]
        except sqlite3.OperationalError:
            return []
        finally:
            connection.close()

    def problems(self, plugin: Plugin, **more: Any) -> set[str]:
        given = {"read": self.read, "idempotent": True, "big_batch": 200} | more
        return broken(conformance.problems_of_sink(plugin, self.config, self.records, **given))


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


def sink_of(put: Callable[[sqlite3.Connection, list[Record]], None], *, commits: bool = True) -> Plugin:
    @sink("planted", version="1", setup=database)
    def made(connection: sqlite3.Connection, batch: list[Record]) -> None:
        """A planted fault."""
        put(connection, batch)

    if commits:

        @flush(made)
        def commit(connection: sqlite3.Connection) -> None:
            connection.commit()

    return made


def replaced(connection: sqlite3.Connection, batch: list[Record]) -> None:
    connection.executemany("REPLACE INTO t VALUES (?, ?)", [(each.key, each.value) for each in batch])


def test_a_right_sink_conforms(target: Target) -> None:
    def put(connection: sqlite3.Connection, batch: list[Record]) -> None:
        bad = {index: ValueError("no text") for index, each in enumerate(batch) if not isinstance(each.value, str)}
        if bad:
            raise PartialFailure(bad)
        replaced(connection, batch)

    conformance.check_sink(
        sink_of(put), target.config, target.records, read=target.read, idempotent=True, refused=Record(key="x", value=1)
    )
    assert len(target.read()) == 20


def test_a_sink_that_flushes_nothing_is_caught(target: Target) -> None:
    assert "flush" in target.problems(sink_of(replaced, commits=False))


def test_a_sink_that_an_empty_batch_kills_is_caught(target: Target) -> None:
    def put(connection: sqlite3.Connection, batch: list[Record]) -> None:
        assert batch[0].topic
        replaced(connection, batch)

    assert target.problems(sink_of(put)) == {"batch-empty"}


def test_a_sink_that_a_big_batch_kills_is_caught(target: Target) -> None:
    def put(connection: sqlite3.Connection, batch: list[Record]) -> None:
        if len(batch) > 100:
            raise sqlite3.OperationalError("too many variables")
        replaced(connection, batch)

    assert target.problems(sink_of(put)) == {"batch-big"}


def test_a_sink_that_leaves_out_a_big_batch_is_caught(target: Target) -> None:
    def put(connection: sqlite3.Connection, batch: list[Record]) -> None:
        replaced(connection, batch[:100])

    assert target.problems(sink_of(put)) == {"batch-big"}


def test_a_sink_that_refuses_records_that_are_good_is_caught(target: Target) -> None:
    def put(connection: sqlite3.Connection, batch: list[Record]) -> None:
        if batch:
            raise PartialFailure({index: ValueError("not today") for index in range(len(batch))})

    assert target.problems(sink_of(put)) == {"flush", "redelivery", "batch-big"}
    assert "partial-failure" in target.problems(sink_of(put), refused=Record(key="x", value=1))


def test_a_sink_that_a_second_delivery_kills_is_caught(target: Target) -> None:
    def put(connection: sqlite3.Connection, batch: list[Record]) -> None:
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(each.key, each.value) for each in batch])

    assert "redelivery" in target.problems(sink_of(put))


def test_a_sink_that_writes_a_second_delivery_twice_is_caught(target: Target) -> None:
    numbers = itertools.count()

    def put(connection: sqlite3.Connection, batch: list[Record]) -> None:
        replaced(connection, [replace(each, key=str(next(numbers))) for each in batch])

    assert target.problems(sink_of(put)) == {"redelivery"}
    assert target.problems(sink_of(put), idempotent=False) == set()


@pytest.mark.parametrize("shift", [1, 1000])
def test_a_sink_that_names_the_wrong_record_is_caught(target: Target, shift: int) -> None:
    def put(connection: sqlite3.Connection, batch: list[Record]) -> None:
        bad = {index + shift: ValueError() for index, each in enumerate(batch) if not isinstance(each.value, str)}
        if bad and len(batch) > 20:
            raise PartialFailure(bad)
        replaced(connection, [each for each in batch if isinstance(each.value, str)])

    assert target.problems(sink_of(put), refused=Record(key="x", value=1)) == {"partial-failure"}


def test_a_sink_that_cannot_be_closed_is_caught(target: Target) -> None:
    class Clumsy(SinkTask):
        def __init__(self, settings: Table) -> None:
            self._settings = settings

        def start(self, context: TaskContext) -> None:
            self._life = database(self._settings)
            self._connection = next(self._life)

        def put(self, records: Sequence[Record]) -> None:
            replaced(self._connection, list(records))

        def flush(self) -> None:
            self._connection.commit()

        def stop(self) -> None:
            next(self._life)

    plugin = Plugin(
        name="planted", kind=PluginKind.SINK, version="1", config=Table, task=Clumsy, doc="A planted fault."
    )
    assert target.problems(plugin) >= {"start-stop", "flush"}


def test_the_wrong_kind_is_told() -> None:
    with pytest.raises(TypeError, match="Right is not a sink"):
        conformance.check_sink(right, CONFIG, [], read=list)
    with pytest.raises(TypeError, match="planted is not a source"):
        conformance.check_source(sink_of(replaced), {"database": "/tmp/x"})


# --------------------------------------------------------------------- shipped


def test_the_shipped_file_source_conforms(tmp_path: Path) -> None:
    from tidemill.connect.plugins.file import file_source

    file = tmp_path / "lines"
    file.write_text("".join(f"line {n}\n" for n in range(30)))
    config = {"file": str(file), "topic": "lines", "batch.size": "4"}
    conformance.check_source(file_source, config, count=30, wrong={"file": str(tmp_path), "batch.size": "0"})


def test_the_shipped_file_sink_conforms(tmp_path: Path) -> None:
    from tidemill.connect.plugins.file import file_sink

    file = tmp_path / "lines"
    conformance.check_sink(
        file_sink,
        {"file": str(file)},
        [Record(value=f"line {n}") for n in range(10)],
        read=lambda: file.read_text().splitlines() if file.exists() else [],
        wrong={"file": str(tmp_path)},
    )


def test_the_shipped_spark_sink_has_its_settings_right(tmp_path: Path) -> None:
    from tidemill.connect.plugins.spark import spark_sink

    config = {"topics": "changes", "table.path": str(tmp_path / "table")}
    conformance.check_settings(spark_sink, config)
