"""Lines of threads that print at the same time"""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.connect.remote.line_output import BEGUN_MAX, LineOutput

LINES = 2_000


@pytest.fixture
def often() -> Iterator[None]:
    """Threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often")
def test_each_line_is_of_one_thread(tmp_path: Path) -> None:
    with open(tmp_path / "output", "w") as file:
        output = LineOutput(file.fileno())

        def talk(name: str) -> None:
            for number in range(LINES):
                print(name, number, file=output)

        threads = [threading.Thread(target=talk, args=(name,)) for name in "abcd"]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    told = (tmp_path / "output").read_text().splitlines()
    assert sorted(told) == sorted(f"{name} {number}" for name in "abcd" for number in range(LINES))


def test_a_line_is_written_when_it_is_complete_or_flushed() -> None:
    read, write = os.pipe()
    with open(read, "rb", 0) as reader, open(write, "w") as file:
        output = LineOutput(file.fileno())
        assert output.write("one\ntw") == 6
        assert reader.read(100) == b"one\n"
        output.write("o")
        other = threading.Thread(target=print, args=("other",), kwargs={"file": output, "flush": True})
        other.start()
        other.join()
        assert reader.read(100) == b"other\n"
        output.flush()
        assert reader.read(100) == b"two\n"
        output.flush()
        for _ in range(BEGUN_MAX + 1):
            output.write("x")
        assert reader.read(2 * BEGUN_MAX) == b"x" * (BEGUN_MAX + 1) + b"\n"
        print("caf\udce9", file=output)
        assert reader.read(100) == b"caf\\udce9\n"
        output.buffer.write(b"bytes")
        assert reader.read(100) == b"bytes" and output.fileno() == write
