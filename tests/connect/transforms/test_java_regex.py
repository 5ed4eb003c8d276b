"""Java's expressions: what is spelled otherwise, what has no counterpart, and groups in replacements"""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.transforms.java_regex import compile_java, compile_replacement


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"(?<a>x)\k<a>", "xx", True),
        (r"\p{Upper}\p{Lower}*", "Abc", True),
        (r"[\p{Alpha}_]+", "a_B", True),
        (r"\P{Digit}", "5", False),
        (r"\Qa.b\E.", "a.bc", True),
        (r"\Qa.b", "axb", False),
        (r"a\z", "a", True),
        (r"a\Z", "a\n", False),
        (r"\h+\v", " \t\n", True),
        (r"\H\V\R", "ab\r\n", True),
        (r"[\h\e]", "\x1b", True),
        (r"\x41\x{1F600}\u0042\0101\cA", "A\U0001f600BA\x01", True),
        (r"a++b", "aaab", True),
        (r"(?>a+)ab", "aaab", False),
        (r"(?i)ABC", "abc", True),
        (r"a(?i:B)c", "abc", True),
        (r"a(?=b)b(?!c)(?<=b)(?<!a)", "ab", True),
        (r"\d", "\u0665", False),
        (r"\w", "\u00e9", False),
        (r"[~|]+", "~|", True),
        (r"[\]\-a]+", "]-a", True),
        (r"(a)\1", "aa", True),
        ("[^a]", "b", True),
    ],
)
def test_an_expression_means_what_it_means_in_java(pattern: str, text: str, matches: bool) -> None:
    assert (compile_java(pattern).fullmatch(text) is not None) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{IsGreek}",
        r"\p{L}",
        "[a[bc]]",
        "[a-z&&[^x]]",
        "a(?i)b",
        "(?u)a",
        r"\X",
        r"\G",
        r"[\H]",
        r"[\P{Alpha}]",
        "(?<1a>x)",
        "(?<a",
        "[]",
        "[a",
        "a\\",
        r"\x{zz}",
        "(",
        "*",
        r"\k{a}",
        r"[\z]",
        "a{99999999999}",
        "(" * 5000 + ")" * 5000,
    ],
)
def test_what_has_no_counterpart_is_told(pattern: str) -> None:
    with pytest.raises(ValueError):
        compile_java(pattern)


@pytest.mark.parametrize(
    ("expression", "yes", "no"),
    [
        (r"[\w-.]", "a_7-.", " ,"),
        (r"[\w-a-z]", "A-z", "."),
        (r"[\d-]", "5-", "a"),
        (r"[^\w-.]", " ,", "a-."),
        (r"[\s--/]", " -./", ",0"),
        (r"[a-c-e]", "abc-e", "d"),
        (r"[a\-c]", "a-c", "b"),
        (r"[-a]", "-a", "b"),
        (r"[+--]", "+,-", "."),
        (r"[\x41-\u0043]", "ABC", "D-"),
        (r"[\t-\r]", "\t\n\r", "-"),
        (r"[\p{Blank}-x]", "\t -x", "A"),
        (r"[\p{Space}-x]", "\r -x", "A"),
        (r"[\h-\x{4000}]", "\u3000-\u4000", "\u3001"),
        (r"[\Qa-c\E]", "a-c", "b"),
        (r"[\Qxa\E-c]", "xabc", "-"),
        (r"[a-\Qc.\E]", "abc.", "-"),
        (r"[\Q^é]\E]", "^é]", "a"),
        (r"\Q1\E", "1", "2"),
    ],
)
def test_a_hyphen_in_a_class_is_a_range_between_two_letters_only(expression: str, yes: str, no: str) -> None:
    pattern = compile_java(expression)
    assert all(pattern.fullmatch(letter) for letter in yes) and not any(pattern.fullmatch(letter) for letter in no)


@pytest.mark.parametrize("expression", [r"[a-\w]", r"[ -\h]", r"[+-\p{Alpha}]", "[z-a]", "[a-&&b]", r"[\v-x]"])
def test_a_range_that_does_not_end_with_a_letter_is_told(expression: str) -> None:
    with pytest.raises(ValueError):
        compile_java(expression)


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_anything_is_an_expression_or_an_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        compile_java(text)
    assert compile_java(f"\\Q{text}") if "\\E" not in text else True


@given(st.text())
def test_a_quoted_text_matches_itself(text: str) -> None:
    if "\\E" not in text:
        assert compile_java(f"\\Q{text}\\E").fullmatch(text)


@pytest.mark.parametrize(
    ("pattern", "replacement", "expected"),
    [
        ("(a)(b)", "$2$1", "ba"),
        ("(a)(b)", "$12", "a2"),
        ("(?<x>a)(b)", "${x}-$0", "a-ab"),
        ("(a)(b)", r"\$1\\", "$1\\"),
        ("(a)b|(x)", "[$2]", "[]"),
    ],
)
def test_groups_stand_in_replacements(pattern: str, replacement: str, expected: str) -> None:
    compiled = compile_java(pattern)
    assert compiled.sub(compile_replacement(replacement, compiled), "ab", count=1) == expected


@pytest.mark.parametrize("replacement", ["$2", "$", "$x", "${y}", "${x", "a\\"])
def test_a_group_that_does_not_exist_is_told(replacement: str) -> None:
    with pytest.raises(ValueError):
        compile_replacement(replacement, re.compile("(?P<x>a)"))


@pytest.mark.parametrize(("expression", "yes", "no"), [("[.^]", "^.", "a"), ("[^^]", "a.", "^")])
def test_a_caret_that_is_not_first_in_a_class_is_a_letter(expression: str, yes: str, no: str) -> None:
    pattern = compile_java(expression)
    assert all(pattern.fullmatch(letter) for letter in yes) and not pattern.fullmatch(no)
