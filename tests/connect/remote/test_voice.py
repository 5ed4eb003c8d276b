"""What a task says to its worker"""

import orjson

from tidemill.connect.api import Fatal
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.voice import FACTS_BYTES_MAX, TRACE_MAX, Voice, trace
from tidemill.connect.tasks.control import News, TaskControl


def said_by(seat: int = 0) -> tuple[Voice, list[pb.FromTask]]:
    said: list[pb.FromTask] = []
    return Voice(said.append, seat), said


def test_everything_is_said_for_a_seat() -> None:
    voice, said = said_by(7)
    control = TaskControl(voice.announce)
    control.announce_start()
    control.report({"lines": 1})
    voice.report(control)
    voice.failed(Fatal("the disk is full"))
    voice.ended(1)
    assert [each.seat for each in said] == [7] * 4
    assert [each.WhichOneof("message") for each in said] == ["started", "report", "failed", "ended"]
    assert (said[2].failed.trace, said[2].failed.failure) == ("the disk is full", "configuration")
    assert said[3].ended.code == 1


def test_all_news_have_their_messages() -> None:
    voice, said = said_by()
    for news in News:
        voice.announce(news)
    assert [each.WhichOneof("message") for each in said] == ["started", "paused", "resumed", "completed"]


def test_only_what_is_new_is_reported_and_nothing_after_the_last_report() -> None:
    voice, said = said_by()
    control = TaskControl(voice.announce)
    voice.report(control)
    assert said == [], "nothing was known, and nothing is"
    for number in (1, 1, 2):
        control.report({"number": number})
        voice.report(control)
    control.problem("file", "it is away")
    voice.report(control, last=True)
    control.report({"number": 3})
    voice.report(control)
    assert [orjson.loads(each.report.facts_json)["number"] for each in said] == [1, 2, 2]
    assert said[-1].report.trouble.message == "it is away"


def test_facts_that_are_no_json_or_too_many_keep_nothing_else_from_being_told() -> None:
    voice, said = said_by()
    control = TaskControl(voice.announce)
    control.report({"large": 2**70, "good": 1})
    voice.report(control)
    control.report({"text": "x" * (FACTS_BYTES_MAX + 1)})
    voice.report(control)
    assert orjson.loads(said[0].report.facts_json) == {"good": 1}
    assert set(orjson.loads(said[1].report.facts_json)) == {"facts-too-large"}


def test_an_ends_text_can_be_written_whatever_it_quotes() -> None:
    assert trace(Fatal("cannot read caf\udce9")) == "cannot read caf?"
    long = trace(Fatal("x" * 10 * TRACE_MAX))
    assert len(long) < TRACE_MAX + 100 and f"{9 * TRACE_MAX} characters left out" in long
