"""Configuration tables: parsing, defaults, error sentences, file grammars."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.config import (
    REQUIRED,
    ConfigError,
    ConfigKey,
    ConfigTable,
    ConfigType,
    address_or_empty,
    in_range,
    not_empty,
    one_of,
    parse_address,
    parse_assignments,
    parse_config_text,
    parse_properties,
    parse_toml,
)

TABLE = ConfigTable(
    [
        ConfigKey(name="node.id", type=ConfigType.INT, default=REQUIRED, doc="Who we are.", valid=in_range(0)),
        ConfigKey(name="log.dirs", type=ConfigType.LIST, default=("data",), doc="Where.", valid=not_empty),
        ConfigKey(
            name="flush.policy", type=ConfigType.STRING, default="group", doc="When.", valid=one_of("group", "os")
        ),
        ConfigKey(name="ratio", type=ConfigType.DOUBLE, default=0.5, doc="How much.", valid=in_range(0, 1)),
        ConfigKey(name="auto", type=ConfigType.BOOLEAN, default=True, doc="Whether."),
    ]
)


def test_defaults_fill_what_is_not_given() -> None:
    values = TABLE.parse({"node.id": " 7 "})
    assert values == {"node.id": 7, "log.dirs": ("data",), "flush.policy": "group", "ratio": 0.5, "auto": True}


@pytest.mark.parametrize("text", ["half", "nan", "inf", "-Infinity", ""])
def test_a_double_is_a_number(text: str) -> None:
    with pytest.raises(ConfigError, match="not a number"):
        TABLE.parse({"node.id": "7", "ratio": text})


def test_every_problem_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        TABLE.parse({"flush.polcy": "os", "flush.policy": "never", "ratio": "2", "auto": "yes"})
    text = "\n".join(caught.value.problems)
    assert "did you mean 'flush.policy'" in text
    assert "never is not one of group, os" in text
    assert "no more than 1" in text
    assert "expected true or false" in text
    assert "Missing required configuration 'node.id'" in text
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    ("raw", "message"), [("x", "Not a number"), ("1_0", "Not a number"), (str(2**31), "outside"), ("-1", "at least 0")]
)
def test_integers_are_checked(raw: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TABLE.parse({"node.id": raw})


def test_unknown_keys_can_be_left_to_somebody_else() -> None:
    assert TABLE.parse({"node.id": "1", "other": "x"}, ignore_unknown=True)["node.id"] == 1


def test_properties_grammar() -> None:
    text = (
        "# comment\n! too\nclusters = A, B\nA->B.enabled: true\nlong = one \\\n    two\n"
        "key\\ with\\ space=v\\u00e9\nempty=\nbare\n"
    )
    assert parse_properties(text) == {
        "clusters": "A, B",
        "A->B.enabled": "true",
        "long": "one two",
        "key with space": "vé",
        "empty": "",
        "bare": "",
    }


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9.\-]{0,10}", fullmatch=True), st.from_regex(r"[!-\[\]-~]{0,12}", fullmatch=True)
    )
)
def test_simple_properties_round_trip(settings: dict[str, str]) -> None:
    assert parse_properties("\n".join(f"{key}={value}" for key, value in settings.items())) == settings


def test_toml_tables_become_dotted_keys() -> None:
    assert parse_toml('[log]\ndirs = ["a", "b"]\n[auto.create]\ntopics = true\n') == {
        "log.dirs": "a,b",
        "auto.create.topics": "true",
    }
    with pytest.raises(ConfigError, match="Not valid TOML"):
        parse_toml("[[")
    assert parse_config_text("a = 1", "x.toml") == parse_config_text("a=1", "x.properties")


def test_assignments() -> None:
    assert parse_assignments(["a=b=c", " x = y "]) == {"a": "b=c", "x": "y"}
    with pytest.raises(ConfigError, match="key=value"):
        parse_assignments(["nonsense"])


def test_effective_settings_are_a_file_of_their_own() -> None:
    secret = ConfigKey(name="key.password", type=ConfigType.PASSWORD, default="", doc="A secret.")
    name = ConfigKey(name="name", type=ConfigType.STRING, default="x", doc="A name.")
    ports = ConfigKey(name="ports", type=ConfigType.LIST, default=("1", "2"), doc="Several.")
    shown = ConfigTable([secret, name, ports]).properties(
        {"key.password": "hush", "name": " y ", "producer.acks": "all", "producer.sasl.jaas.config": "hush"}
    )
    assert shown.splitlines() == [
        "# given",
        "key.password=********",
        "name=y",
        "producer.acks=all",
        "producer.sasl.jaas.config=********",
        "",
        "# defaults",
        "ports=1,2",
    ]
    count = ConfigKey(name="count", type=ConfigType.INT, default=1, doc="How many.")
    table = ConfigTable([count])
    assert table.properties({}, {"count": 3}).splitlines()[-1] == "count=3"
    assert "count=2" in table.properties({"count": "2"}, {"count": 3}).splitlines()


def test_the_reference_page_has_every_key() -> None:
    page = TABLE.markdown()
    assert all(f"`{key}`" in page for key in TABLE.names())
    assert "*required*" in page


@pytest.mark.parametrize("name", ["ssl.keystore.key", "producer.ssl.key.pem", "producer.sasl.password"])
def test_a_private_key_is_not_shown(name: str) -> None:
    assert f"{name}=********" in ConfigTable([]).properties({name: "-----BEGIN PRIVATE KEY-----"})


@pytest.mark.parametrize(
    ("text", "address"),
    [("h:1", ("h", 1)), (":9092", ("", 9092)), ("[::1]:5", ("::1", 5)), ("0.0.0.0:0", ("0.0.0.0", 0))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert address_or_empty(text) is None


@pytest.mark.parametrize("text", ["", "h", "h:", "h:x", "h:-1", "h:65536"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="Expected HOST:PORT"):
        parse_address(text)
    assert (address_or_empty(text) is None) == (not text)
