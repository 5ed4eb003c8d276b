"""One rule for variables, read from the names that are known; the strongest source wins."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tidemill.broker.config import known_names as broker_names
from tidemill.connect.config import known_names as worker_names
from tidemill.core.config import ConfigError
from tidemill.core.environment import FROM_FILE, WHOLE, gather, origin, variable_of
from tidemill.mirror.config import known_names as mirror_names
from tidemill.spark_sink.config import known_names as job_names

PREFIX = "TIDEMILL_X_"
NAMES = ("log.dirs", "log.retention.ms", "offset-syncs.location", "sasl.password")


def known(_given: Mapping[str, str]) -> Iterable[str]:
    return NAMES


def gathered(environ: Mapping[str, str], *assignments: str, file: Path | None = None) -> dict[str, str]:
    prefixed = {f"{PREFIX}{name}": value for name, value in environ.items()}
    return gather(file, {**prefixed, "HOME": "/root", "TIDEMILL_Y": "1"}, PREFIX, known, assignments)


def refused(environ: Mapping[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as error:
        gathered(environ)
    return error.value.problems


def test_dots_and_dashes_are_underscores_and_upper_case() -> None:
    environ = {"LOG_DIRS": "a,b", "LOG_RETENTION_MS": "5", "OFFSET_SYNCS_LOCATION": "source"}
    assert gathered(environ) == {"log.dirs": "a,b", "log.retention.ms": "5", "offset-syncs.location": "source"}


def test_the_strongest_source_wins(tmp_path: Path) -> None:
    file = tmp_path / "x.properties"
    file.write_text("log.dirs=file\nlog.retention.ms=file\nsasl.password=file\noffset-syncs.location=file\n")
    whole = "log.retention.ms=whole\nsasl.password=whole\noffset-syncs.location=whole"
    environ = {WHOLE: whole, "SASL_PASSWORD": "variable", "OFFSET_SYNCS_LOCATION": "variable"}
    assert gathered(environ, "offset-syncs.location=argument", file=file) == {
        "log.dirs": "file",
        "log.retention.ms": "whole",
        "sasl.password": "variable",
        "offset-syncs.location": "argument",
    }


def test_a_whole_file_in_a_variable_takes_any_name() -> None:
    assert gathered({WHOLE: "A->B.enabled: true\nspark.executor.memoryOverhead=1g\n"}) == {
        "A->B.enabled": "true",
        "spark.executor.memoryOverhead": "1g",
    }


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("LOG_RETENTION", f"did you mean {PREFIX}LOG_RETENTION_MS?"),
        ("log_dirs", f"did you mean {PREFIX}LOG_DIRS?"),
        ("PASSWORD", f"did you mean {PREFIX}SASL_PASSWORD?"),
        ("SPARK_EXECUTOR_MEMORY", f"a setting without a variable of its own is a line of {PREFIX}PROPERTIES"),
        ("", f"a setting without a variable of its own is a line of {PREFIX}PROPERTIES"),
    ],
)
def test_an_unknown_variable_is_refused_by_name(variable: str, says: str) -> None:
    (problem,) = refused({variable: "1"})
    assert problem.startswith(f"Unknown variable {PREFIX}{variable}: ")
    assert problem.endswith(says)


def test_every_problem_is_told_at_once() -> None:
    assert len(refused({"NONSENSE": "1", "OTHER": "2", "LOG_DIRS_FILE": "/nowhere"})) == 3


def test_a_variable_that_two_settings_could_mean_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"X_A_B could mean a-b or a\.b: write it into X_PROPERTIES") as error:
        gather(None, {"X_A_B": "1"}, "X_", lambda given: ("a.b", "a-b", "c"))
    assert len(error.value.problems) == 1
    assert gather(None, {"X_C": "1"}, "X_", lambda given: ("a.b", "a-b", "c")) == {"c": "1"}


def test_names_that_depend_on_other_settings() -> None:
    def names(given: Mapping[str, str]) -> Iterator[str]:
        yield "clusters"
        yield from (f"{each}.address" for each in given.get("clusters", "").split(",") if each)

    expected = {"clusters": "a,b", "b.address": "x"}
    assert gather(None, {"X_CLUSTERS": "a,b", "X_B_ADDRESS": "x"}, "X_", names) == expected
    assert gather(None, {"X_B_ADDRESS": "x"}, "X_", names, ["clusters=a,b"]) == expected
    with pytest.raises(ConfigError, match="Unknown variable X_C_ADDRESS"):
        gather(None, {"X_CLUSTERS": "a,b", "X_C_ADDRESS": "x"}, "X_", names)


def test_a_secret_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(" pass word \n")
    assert gathered({f"SASL_PASSWORD{FROM_FILE}": str(file)}) == {"sasl.password": " pass word "}
    file.write_text("sasl.password=x\n")
    assert gathered({f"{WHOLE}{FROM_FILE}": str(file)}) == {"sasl.password": "x"}


def test_a_mark_at_the_begin_of_a_file_is_not_part_of_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("\ufefflog.dirs=a", encoding="utf-8")
    assert gathered({}, file=file) == gathered({f"{WHOLE}{FROM_FILE}": str(file)}) == {"log.dirs": "a"}
    file.write_text("\ufeffpassword", encoding="utf-8")
    assert gathered({f"SASL_PASSWORD{FROM_FILE}": str(file)}) == {"sasl.password": "password"}


def test_a_secret_that_is_not_there_is_named(tmp_path: Path) -> None:
    (problem,) = refused({f"SASL_PASSWORD{FROM_FILE}": f"{tmp_path}/none"})
    assert problem == (
        f"{PREFIX}SASL_PASSWORD_FILE: cannot read '{tmp_path}/none': No such file or directory; "
        "mount the secret there or correct the path"
    )
    (problem,) = refused({f"SASL_PASSWORD{FROM_FILE}": str(tmp_path)})
    assert "Is a directory" in problem
    (problem,) = refused({f"SASL_PASSWORD{FROM_FILE}": "/none", "SASL_PASSWORD": "x"})
    assert problem == f"{PREFIX}SASL_PASSWORD and {PREFIX}SASL_PASSWORD_FILE are both set: remove one"
    assert refused({WHOLE: "", f"{WHOLE}{FROM_FILE}": "/none"})[0].endswith("both set: remove one")


def test_a_secret_is_of_a_secrets_size(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"x" * (2**20 + 1))
    (problem,) = refused({f"SASL_PASSWORD{FROM_FILE}": str(file)})
    assert problem == f"{PREFIX}SASL_PASSWORD_FILE: {file} has more than {2**20} bytes"


def test_what_orchestrators_put_there_for_a_service_of_our_name_is_no_setting() -> None:
    environ = {
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "9092",
        "SERVICE_PORT_KAFKA": "9092",
        "PORT": "tcp://10.0.0.1:9092",
        "PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "PORT_9092_TCP_PROTO": "tcp",
        "EAST_SERVICE_HOST": "10.0.0.2",
        "EAST_PORT": "tcp://10.0.0.2:9092",
    }
    assert gathered(environ) == {}
    (problem,) = refused({"PORT": "9092"})
    assert problem.startswith(f"Unknown variable {PREFIX}PORT")


def test_variables_of_somebody_else_are_left_alone() -> None:
    assert gather(None, {"X_URL": "http://x"}, "X_", known, not_settings=("URL",)) == {}


def test_where_settings_were_looked_for() -> None:
    assert origin(Path("a.toml"), {}, PREFIX) == "a.toml"
    assert origin(Path("a.toml"), {f"{PREFIX}A": "1"}, PREFIX) == f"a.toml and {PREFIX}*"
    assert origin(None, {f"{PREFIX}A": "1"}, PREFIX) == f"{PREFIX}*"
    assert origin(None, {}, PREFIX) == "no settings given"


@pytest.mark.parametrize("text", ["[[", "a = "])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"^{file}: Not valid TOML"):
        gathered({}, file=file)


@pytest.mark.parametrize("names", [broker_names, worker_names, job_names, mirror_names])
def test_no_two_settings_of_a_process_share_a_variable(names: object) -> None:
    assert callable(names)
    everything = set(names({"clusters": "east,west"}))
    spelled = {variable_of(name) for name in everything}
    assert len(spelled) == len(everything) > 20
    assert not {f"{name}{FROM_FILE}" for name in spelled} & spelled, "a setting that looks like another one's file"
    assert WHOLE not in spelled
