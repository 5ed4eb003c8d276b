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
