"""Orders and the files that come with them"""

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.remote.orders import Line, LineReader, OrderSocket, close_files, encode

FACTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.integers() | st.text("a\n"))


@given(st.lists(FACTS.filter(lambda facts: "files" not in facts), max_size=5), st.integers(1, 7))
def test_lines_come_back_however_they_were_cut(sent: list[dict[str, object]], size: int) -> None:
    reader = LineReader()
    data = b"".join(map(encode, sent))
    found = [line for at in range(0, len(data), size) for line in reader.take(data[at : at + size])]
    assert found == [Line(facts) for facts in sent]


def test_files_belong_to_the_lines_they_were_announced_by() -> None:
    reader = LineReader()
    data = encode({"a": 1}, (3, 4)) + encode({"b": 2}) + encode({"c": 3}, (5,))
    assert list(reader.take(data[:5], (7, 8))) == []
    assert list(reader.take(data[5:], (9,))) == [Line({"a": 1}, (7, 8)), Line({"b": 2}), Line({"c": 3}, (9,))]


def test_files_cross_the_socket() -> None:
    here, there = socket.socketpair()
    sender, receiver = OrderSocket(here), OrderSocket(there)
    read, write = os.pipe()
    sender.send({"do": "look"})
    sender.send({"do": "write"}, (write,))
    os.close(write)
    lines = []
    while len(lines) < 2:
        lines += receiver.receive() or []
    assert [line.facts["do"] for line in lines] == ["look", "write"]
    (handed,) = lines[1].files
    assert not os.get_inheritable(handed), "a program that is started meanwhile must not hold it"
    os.write(handed, b"x")
    close_files((handed,))
    assert os.read(read, 2) == b"x"
    assert os.read(read, 2) == b""
    os.close(read)
    sender.close()
    assert receiver.receive() is None
    with pytest.raises(OSError, match="Broken pipe"):
        receiver.send({"too": "late"})
    receiver.close()


def test_whoever_does_not_read_is_not_waited_for() -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    sender = OrderSocket(here)

    def send_on() -> None:
        for _ in range(10_000):
            sender.send({"pad": "x" * 1000})

    with there, here, pytest.raises(BlockingIOError):
        send_on()
