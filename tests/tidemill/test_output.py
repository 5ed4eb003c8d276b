"""What commands print."""

import json

import pytest
import typer

from tidemill.output import complain, fail, new_table, print_json, print_table


def test_a_table_in_a_pipe_folds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    table = new_table("topic", "partitions")
    table.add_row("t" * 150, "3")
    print_table(table)
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["topic", "partitions"]
    assert row.split() == ["t" * 150, "3"]


def test_what_stands_in_square_brackets_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """Error texts have them."""
    table = new_table("problem")
    table.add_row("ValueError: [a-z]+ does not match [/b] :x:")
    print_table(table)
    assert capsys.readouterr().out.splitlines()[1].strip() == "ValueError: [a-z]+ does not match [/b] :x:"


def test_an_empty_table_is_a_sentence_beside_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(new_table("topic"), empty="no topics")
    assert capsys.readouterr() == ("", "no topics\n")


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "ü"})
    out = capsys.readouterr().out
    assert (json.loads(out), out.count("\n")) == ({"name": "ü"}, 1)


def test_a_failure_is_one_line_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    complain("first")
    with pytest.raises(typer.Exit) as caught:
        fail("second", 2)
    assert caught.value.exit_code == 2
    assert capsys.readouterr().err == "tidemill: first\ntidemill: second\n"
