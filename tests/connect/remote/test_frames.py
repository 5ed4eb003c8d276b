"""Messages on a stream"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.remote import frames
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.frames import FrameError, FrameReader, frame


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5), st.integers(1, 9))
def test_messages_come_back_however_they_were_cut(traces: list[str], size: int) -> None:
    data = b"".join(frame(pb.FromTask(failed=pb.Failed(trace=trace))) for trace in traces)
    reader = FrameReader()
    found = [each for at in range(0, len(data), size) for each in reader.take(data[at : at + size])]
    assert [pb.FromTask.FromString(each).failed.trace for each in found] == traces


def test_a_length_that_cannot_be_is_refused_before_it_is_waited_for() -> None:
    with pytest.raises(FrameError, match="a message of 4294967295 bytes"):
        list(FrameReader().take(b"\xff\xff\xff\xffabc"))


def test_a_message_that_nobody_would_take_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MESSAGE_BYTES_MAX", 100)
    with pytest.raises(FrameError, match="of 100 at most"):
        frame(pb.FromTask(failed=pb.Failed(trace="x" * 100)))
