"""The task's side of the record protocol: one request, its one answer

Bytes in, messages out, and the other way round. Whatever the plugin says that is not of the protocol raises
`Misspoken`, after which nothing more is heard: where one message was cut wrongly there is no telling where the next
one begins. An answer is given out as a whole or not at all, so that no record of a broken one is ever produced.
"""

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.field_count import FIELDS_MAX, has_too_many
from tidemill.connect.plugins.process.frames import FrameError, FrameReader, frame, shown

PROTOCOL_VERSION = 1

ANSWERS = {
    "describe": "described",
    "validate": "validated",
    "split": "divided",
    "start": "started",
    "position": "done",
    "poll": "polled",
    "commit": "done",
    "open": "opened",
    "close": "done",
    "put": "taken",
    "flush": "done",
    "stop": "done",
}
"""What answers which request; `error` answers any."""

NOTES = frozenset({"log", "waiting"})
"""What may come before an answer, or when nothing was asked."""


class Misspoken(ValueError):
    """What the plugin said is not of the protocol."""


class Conversation:
    """What was asked, and what is still to be answered."""

    def __init__(self) -> None:
        self._frames = FrameReader()
        self._number = 0
        self._asked: str | None = None
        self._broken = False

    @property
    def asked(self) -> str | None:
        """The request that is not answered yet."""
        return self._asked

    @property
    def pending(self) -> bytes:
        """The beginning of a message that has not come as a whole; the plugin may wait in the middle of it."""
        return self._frames.pending

    def ask(self, request: pb.ToPlugin) -> bytes:
        """The bytes of a request; raises FrameError when it is too large, and is then not asked."""
        assert self._asked is None, "one request at a time"
        assert not self._broken, "nothing is asked of who cannot be understood"
        request.number = self._number + 1
        data = frame(request.SerializeToString())
        self._number += 1
        self._asked = request.WhichOneof("request")
        return data

    def hear(self, data: bytes) -> Iterator[pb.FromPlugin]:
        """Yield what is said by these bytes: notes, and the answer; raises Misspoken."""
        if self._broken:
            raise Misspoken("it was not to be understood before")
        try:
            for each in self._frames.take(data):
                yield self._understood(each)
        except (FrameError, Misspoken) as error:
            self._broken = True
            raise Misspoken(str(error)) from error

    def _understood(self, data: bytes) -> pb.FromPlugin:
        if has_too_many(data, pb.FromPlugin):
            raise Misspoken(f"a message of {len(data)} bytes with more than {FIELDS_MAX} fields")
        try:
            message = pb.FromPlugin.FromString(data)
        except DecodeError as error:
            raise Misspoken(f"what should be a message of {len(data)} bytes is none: {shown(data)}") from error
        kind = message.WhichOneof("message")
        if kind is None:
            raise Misspoken(f"a message of {len(data)} bytes says nothing this version knows: {shown(data)}")
        if kind in NOTES:
            return message
        if self._asked is None:
            raise Misspoken(f"it says {kind!r} without being asked")
        expected = ANSWERS[self._asked]
        if kind not in (expected, "error"):
            raise Misspoken(f"it answers {self._asked!r} with {kind!r}, not with {expected!r}")
        if message.number != self._number:
            raise Misspoken(f"it answers request {message.number}; {self._asked!r} was request {self._number}")
        self._asked = None
        return message
