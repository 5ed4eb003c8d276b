"""References to secrets are found wherever they stand"""

import pytest

from tidemill.connect.references import references


@pytest.mark.parametrize(
    "value", ["${file:/run/secrets/db:password}", "${env:PASSWORD}", "jdbc:x?password=${vault:db:pw}&a=b", "${:x}"]
)
def test_a_reference_is_found(value: str) -> None:
    (problem,) = references({"a": "plain", "b": value})
    assert problem.setting == "b" and "config provider" in problem.text
    assert value not in problem.text


@pytest.mark.parametrize("value", ["${topic}-${timestamp}", "$1", "{a:b}", "${", "${a:", "$${topic}"])
def test_what_only_looks_like_one_is_left_alone(value: str) -> None:
    assert not list(references({"a": value}))


@pytest.mark.parametrize(("value", "provider"), [("${a${file:x}", "a${file"), ("${a}${file:x}", "file"), ("${:}", "")])
def test_the_provider_of_the_first_reference_is_named(value: str, provider: str) -> None:
    (problem,) = references({"a": value})
    assert f"config provider '{provider}'" in problem.text


@pytest.mark.parametrize("piece", ["${", "${a:", "${}"])
def test_a_long_value_is_read_once(piece: str) -> None:
    """A million characters that look like references are judged at once; read anew from each, they would take hours."""
    assert not list(references({"a": piece * 300_000}))
