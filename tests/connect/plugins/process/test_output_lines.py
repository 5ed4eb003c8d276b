"""What a plugin prints: lines, and not too many of them"""

from hypothesis import given
from hypothesis import strategies as st

from tests.connect.plugins.process.test_frames import cut
from tidemill.connect.plugins.process.output_lines import LAST_LINES, LINE_BYTES_MAX, LINES_MAX, OutputLines


@given(lines=st.lists(st.text(alphabet="ab é", max_size=10), max_size=20), places=st.lists(st.integers(0, 300)))
def test_any_split_of_the_bytes_gives_the_same_lines(lines: list[str], places: list[int]) -> None:
    output = OutputLines()
    found = [each for piece in cut("\n".join(lines).encode(), places) for each in output.take(piece, 0.0)]
    found += output.end(0.0)
    assert found == (lines if lines and lines[-1] else lines[:-1])


def test_a_long_line_is_cut_and_its_end_left_out() -> None:
    output = OutputLines()
    found = [each for _ in range(100) for each in output.take(b"x" * 1_000, 0.0)]
    found += output.take(b"end\nnext\n", 0.0)
    assert found == ["x" * LINE_BYTES_MAX + "…", "next"]
    assert OutputLines().take(b"y" * 5_000 + b"\nz\n", 0.0) == ["y" * LINE_BYTES_MAX + "…", "z"]


def test_so_many_lines_in_a_second() -> None:
    output = OutputLines()
    assert len(output.take(b"line\n" * 100_000, 7.0)) == LINES_MAX
    assert output.take(b"later\n", 8.5) == [
        f"… {100_000 - LINES_MAX} lines left out, of more than {LINES_MAX} in a second",
        "later",
    ]


def test_the_last_lines_are_kept_whatever_was_left_out() -> None:
    output = OutputLines()
    assert output.last_words() == ""
    output.take(b"line\n" * 10_000 + b"  the reason\nand more", 0.0)
    output.end(0.0)
    assert output.last_words().endswith("line | the reason | and more")
    assert len(output.last) == LAST_LINES
    output.take(b"w" * 3_999 + b"\n", 0.0)
    assert len(output.last_words()) < 2_100
