"""Versions and ranges of them, as Kafka writes them"""

import pytest

from tidemill.connect.versions import BadVersion, rank, shown, wanted


@pytest.mark.parametrize(
    ("text", "those", "not_those"),
    [
        ("1.2.3", ["1.2.3", "1.2.3.0"], ["1.2.4", "1.2"]),
        ("[1.0,2.0)", ["1.0", "1.9.9", "2.0rc1"], ["0.9", "2.0", "1.0rc1"]),
        ("(1.0,2.0]", ["1.0.1", "2.0"], ["1.0", "2.0.1"]),
        ("[1.5,)", ["1.5", "99"], ["1.4"]),
        ("(,1.5)", ["0.1"], ["1.5"]),
        ("[1.0]", ["1.0.0"], ["1.0.1"]),
        (" [1.0] , [2.0 , 3.0) ", ["1", "2.5"], ["1.5", "3.0"]),
        ("latest", ["1", "nightly"], []),
        ("", ["1", "nightly"], []),
        ("nightly", ["nightly"], ["1.0"]),
        ("[0,)", ["1.0"], ["nightly"]),
    ],
)
def test_a_text_means_these_versions_and_no_others(text: str, those: list[str], not_those: list[str]) -> None:
    meant = wanted(text)
    assert [each for each in [*those, *not_those] if meant.contains(each)] == those


@pytest.mark.parametrize(
    "text", ["[1.0,2.0", "[1,2,3]", "1.0,2.0", "(1.0)", "[]", "[2.0,1.0]", "[x,2.0]", "[1.0] [2.0]", "[1.0],", "1.0 2"]
)
def test_what_is_neither_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(BadVersion, match=r"is neither a version nor a range of versions: 1\.2\.3, \[1\.0,2\.0\)"):
        wanted(text)


def test_versions_are_sorted_as_pythons_are_and_other_words_first() -> None:
    assert sorted(["1.10", "nightly", "1.9", "2.0", "2.0rc1"], key=rank) == ["nightly", "1.9", "1.10", "2.0rc1", "2.0"]
    assert shown(["1.10", "1.9", "1.9"]) == "1.9, 1.10"
