"""One request, its one answer, and whatever else may come"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.connect.plugins.process.test_frames import cut
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.conversation import ANSWERS, NOTES, Conversation, Misspoken
from tidemill.connect.plugins.process.frames import MESSAGE_BYTES_MAX, FrameError, FrameReader, frame


def said(**message: object) -> bytes:
    return frame(pb.FromPlugin(**message).SerializeToString())  # type: ignore[arg-type]


def asked(kind: str = "poll") -> Conversation:
    conversation = Conversation()
    field = pb.ToPlugin.DESCRIPTOR.fields_by_name[kind]
    request = pb.ToPlugin()
    getattr(request, field.name).SetInParent()
    conversation.ask(request)
    return conversation


def test_every_request_of_the_protocol_has_its_answer() -> None:
    requests = {field.name for field in pb.ToPlugin.DESCRIPTOR.oneofs_by_name["request"].fields}
    messages = {field.name for field in pb.FromPlugin.DESCRIPTOR.oneofs_by_name["message"].fields}
    assert requests == set(ANSWERS)
    assert messages == {*ANSWERS.values(), *NOTES, "error"}


def test_requests_are_numbered() -> None:
    conversation = Conversation()
    for number in (1, 2, 3):
        (data,) = FrameReader().take(conversation.ask(pb.ToPlugin(poll=pb.Poll(wait_ms=7))))
        assert pb.ToPlugin.FromString(data) == pb.ToPlugin(number=number, poll=pb.Poll(wait_ms=7))
        (answer,) = conversation.hear(said(number=number, polled=pb.Polled()))
        assert answer.HasField("polled")
        assert conversation.asked is None


def test_an_error_answers_anything() -> None:
    (answer,) = asked("flush").hear(said(number=1, error=pb.Error(message="no")))
    assert answer.error.message == "no"


def test_notes_come_at_any_time() -> None:
    conversation = Conversation()
    assert [each.log.message for each in conversation.hear(said(log=pb.Log(message="early")))] == ["early"]
    conversation = asked()
    notes = list(conversation.hear(said(log=pb.Log(message="a")) + said(waiting=pb.Waiting(message="b"))))
    assert [each.WhichOneof("message") for each in notes] == ["log", "waiting"]
    assert conversation.asked == "poll"


def test_an_answer_of_too_many_things_is_refused_before_any_of_them_is_made() -> None:
    """In memory they take sixteen times as much as on the pipe."""
    polled = b"\x0a\x00" * (1 << 20)
    answer = b"\x08\x01\x32\x80\x80\x80\x01" + polled
    assert len(pb.FromPlugin.FromString(answer).polled.batches) == 1 << 20
    with pytest.raises(Misspoken, match="a message of 2097159 bytes with more than 1000000 fields"):
        list(asked().hear(frame(answer)))
    (heard,) = asked().hear(said(number=1, polled=pb.Polled(batches=[pb.RecordBatch(values=[b"x" * 4_000] * 2_000)])))
    assert len(heard.polled.batches[0].values) == 2_000


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (said(number=1, done=pb.Done()), "it answers 'poll' with 'done', not with 'polled'"),
        (said(number=2, polled=pb.Polled()), "it answers request 2; 'poll' was request 1"),
        (said(number=0, error=pb.Error()), "it answers request 0; 'poll' was request 1"),
        (said(number=1), "says nothing this version knows"),
        (frame(b"Hello, world"), "what should be a message of 12 bytes is none: it begins with 'Hello, world'"),
        (said(number=1, polled=pb.Polled()) * 2, "it says 'polled' without being asked"),
        (b"\xff\xff\xff\xff\xff", "a length of more than 4 bytes"),
    ],
)
def test_what_is_not_of_the_protocol_ends_it(data: bytes, why: str) -> None:
    conversation = asked()
    with pytest.raises(Misspoken, match=why):
        list(conversation.hear(data))
    with pytest.raises(Misspoken, match="not to be understood before"):
        list(conversation.hear(said(number=1, polled=pb.Polled())))


@given(
    notes=st.lists(st.text(max_size=20), max_size=4),
    values=st.lists(st.binary(max_size=50), max_size=5),
    places=st.lists(st.integers(0, 500)),
)
def test_an_answer_comes_whole_however_it_is_cut(notes: list[str], values: list[bytes], places: list[int]) -> None:
    conversation = asked()
    polled = pb.Polled(batches=[pb.RecordBatch(topic="t", values=values)])
    data = b"".join(said(log=pb.Log(message=each)) for each in notes) + said(number=1, polled=polled)
    found = [each for piece in cut(data, places) for each in conversation.hear(piece)]
    assert [each.log.message for each in found[:-1]] == notes
    assert found[-1].polled == polled
    assert conversation.asked is None
    assert conversation.pending == b""


@given(data=st.binary(max_size=300), places=st.lists(st.integers(0, 300)))
def test_rubbish_is_refused_or_waits_for_more_and_is_never_an_answer_to_another_request(
    data: bytes, places: list[int]
) -> None:
    conversation = asked()
    try:
        found = [each for piece in cut(data, places) for each in conversation.hear(piece)]
    except Misspoken:
        return
    kinds = [each.WhichOneof("message") for each in found]
    assert set(kinds) <= {*NOTES, "polled", "error"}
    assert len([each for each in kinds if each not in NOTES]) <= 1


@given(st.data())
def test_one_byte_of_an_answer_changed(data: st.DataObject) -> None:
    whole = bytearray(said(number=1, polled=pb.Polled(batches=[pb.RecordBatch(topic="t", values=[b"abc"])])))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = list(asked().hear(bytes(whole)))
    except Misspoken:
        return
    assert len(found) <= 1


def test_a_request_that_is_too_large_is_not_asked() -> None:
    conversation = Conversation()
    with pytest.raises(FrameError):
        conversation.ask(
            pb.ToPlugin(put=pb.Put(batches=[pb.RecordBatch(topic="t", values=[bytes(MESSAGE_BYTES_MAX + 1)])]))
        )
    assert conversation.asked is None
    conversation.ask(pb.ToPlugin(flush=pb.Flush()))
    assert [each.number for each in conversation.hear(said(number=1, done=pb.Done()))] == [1]
