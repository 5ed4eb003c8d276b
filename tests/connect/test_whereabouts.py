"""The group as a request sees it"""

import asyncio
from collections.abc import Mapping, Sequence

from tidemill.connect.herder.office import Office, OfficeSettings
from tidemill.connect.session_key import KeySettings
from tidemill.connect.stores import KeyValue
from tidemill.connect.topic_log import Headers, LogRecord
from tidemill.connect.whereabouts import Whereabouts
from tidemill.core.runtime.clock import ManualClock


class Seat:
    """A worker that was appointed."""

    leader_url = "http://a:8083"
    trouble = ("", 0)

    def holder_url(self, connector: str, task: int | None = None) -> str | None:
        return f"http://{connector}-{task}"


class Topic:
    """Is read at once by the one office that there is."""

    def __init__(self) -> None:
        self.office: Office | None = None
        self.end = 0

    async def append(self, records: Sequence[KeyValue], headers: Headers = ()) -> Mapping[int, int]:
        assert self.office is not None
        for key, value in records:
            self.office.take(LogRecord(0, self.end, key, value, headers))
            self.end += 1
        return {0: self.end - 1}


async def test_who_was_appointed_leads_when_it_is_in_office() -> None:
    topic = Topic()
    settings = OfficeSettings(life="a", key=KeySettings(), leads=lambda: True, clock=ManualClock())
    topic.office = Office(topic, asyncio.Lock(), settings)
    whereabouts = Whereabouts(Seat(), topic.office, "http://a:8083")
    assert (whereabouts.is_leader, whereabouts.leader_url) == (False, whereabouts.url)
    keeping = asyncio.ensure_future(topic.office.keep())
    async with topic.office.deciding():
        assert whereabouts.is_leader
    keeping.cancel()


def test_who_does_what_is_asked_of_the_seat() -> None:
    settings = OfficeSettings(life="a", key=KeySettings(), leads=lambda: False, clock=ManualClock())
    whereabouts = Whereabouts(Seat(), Office(Topic(), asyncio.Lock(), settings), "http://b:8083")
    assert whereabouts.holder_url("c", 1) == "http://c-1"
    assert whereabouts.holder_url("c", None) == "http://c-None"


def test_what_keeps_it_from_its_group_is_a_sentence() -> None:
    settings = OfficeSettings(life="a", key=KeySettings(), leads=lambda: False, clock=ManualClock())
    seat = Seat()
    whereabouts = Whereabouts(seat, Office(Topic(), asyncio.Lock(), settings), "http://b:8083")
    assert whereabouts.trouble() == ""
    seat.trouble = ("connection refused", 34_200)
    assert "has not reached its group's coordinator for 34 s: connection refused" in whereabouts.trouble()
