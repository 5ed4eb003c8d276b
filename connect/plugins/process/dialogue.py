"""A plugin process to be asked, and what becomes of requests that fail

Every failure of the process is told in one sentence with the end of what it has printed. Two are told apart: a process
that is gone, or is killed because it has not answered, is `NotConnected`: the task goes on with another one, from the
stored offsets, after a pause that grows. One that speaks another language than the record protocol would do so again:
`Fatal`. Either way nothing of an answer that has not come whole was produced or committed.

Once the task is to stop, an answer is waited for no longer than `process.stop.timeout.ms`.
"""

import time
from collections.abc import Callable, Mapping

import structlog

from tidemill.connect.api import Fatal, NotConnected, ReportProblem
from tidemill.connect.plugins.process import record_protocol_pb2 as pb
from tidemill.connect.plugins.process.child import Child
from tidemill.connect.plugins.process.commands import refusals
from tidemill.connect.plugins.process.conversation import PROTOCOL_VERSION, Conversation, Misspoken
from tidemill.connect.plugins.process.failures import failure_of
from tidemill.connect.plugins.process.frames import FrameError, shown
from tidemill.connect.plugins.process.output_lines import OutputLines
from tidemill.connect.plugins.process.settings import ProcessSettings, environment

log = structlog.get_logger("tidemill.connect.process")

LOOK_S = 0.1  # between looks at whether the task is to stop, while an answer is waited for
ANSWERED_S = 1.0  # for the process to end by itself after it has answered Stop, at least

_LEVELS: Mapping[int, str] = {
    pb.Log.DEBUG: "debug",
    pb.Log.INFO: "info",
    pb.Log.WARNING: "warning",
    pb.Log.ERROR: "error",
}


def _no_problem(about: str, message: str | None, *, retry_s: float | None = None) -> None:
    """Nobody looks."""


class Dialogue:
    """One life of a plugin process; raises NotAllowed, CannotStart, or what the module says."""

    def __init__(
        self,
        settings: ProcessSettings,
        config: Mapping[str, str],
        role: "pb.Role",
        *,
        stopping: Callable[[], bool] = lambda: False,
        problem: ReportProblem = _no_problem,
    ) -> None:
        self._settings = settings
        self._stopping = stopping
        self._problem = problem
        self._conversation = Conversation()
        self._notes = OutputLines()  # a plugin may log as much as it may print
        self.failed = False  # it cannot be asked any more
        for refused in refusals(settings.words, config):
            raise refused
        self._child = Child(settings.words, environment(config), lambda line: log.info("plugin", line=line))
        try:
            self.described = self._introduced(role)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._child.pid

    def _introduced(self, role: "pb.Role") -> pb.Described:
        request = pb.ToPlugin(describe=pb.Describe(protocol_version=PROTOCOL_VERSION, role=role))
        described = self.ask(request, timeout_s=self._settings.start_timeout_ms / 1000).described
        if not described.name:  # what a program says that sends back whatever it is sent
            raise Fatal("the plugin does not say its name when it is asked to describe itself")
        if described.protocol_version != PROTOCOL_VERSION:
            raise Fatal(
                f"the plugin {described.name!r} speaks version {described.protocol_version} of the record protocol, "
                f"this worker version {PROTOCOL_VERSION}"
            )
        return described

    def ask(self, request: pb.ToPlugin, *, timeout_s: float | None = None) -> pb.FromPlugin:
        """The answer to a request, which is no Error: that is raised. Raises NotConnected and Fatal, too."""
        asked = str(request.WhichOneof("request"))
        if self.failed:
            raise NotConnected("the plugin process runs no more")
        try:
            unsent = memoryview(self._conversation.ask(request))
        except FrameError as error:
            raise Fatal(f"cannot {asked}: {error}") from error
        limit_s = self._settings.answer_timeout_ms / 1000 if timeout_s is None else timeout_s
        try:
            answer = self._answer(unsent, _Deadline(limit_s, self._settings.stop_timeout_ms / 1000, self._stopping))
        except BaseException:
            self.failed = True  # also where something of ours failed: there is no telling what comes next
            raise
        if answer.HasField("error"):
            raise failure_of(answer.error, asked)
        return answer

    def _answer(self, unsent: memoryview, deadline: "_Deadline") -> pb.FromPlugin:
        asked = self._conversation.asked
        answer: pb.FromPlugin | None = None
        while answer is None or unsent:
            left_s = deadline.left_s()
            if left_s <= 0:
                raise NotConnected(self._late(deadline))
            sent, data = self._child.turn(unsent, min(left_s, LOOK_S))
            unsent = unsent[sent:]
            if data == b"":
                raise NotConnected(self._gone(asked))
            try:
                for message in self._conversation.hear(data or b""):
                    answer = self._noted(message) or answer
            except Misspoken as error:
                words = self._quoted()
                raise Fatal(
                    f"the plugin does not speak the record protocol: {error}. Standard output is for its messages "
                    f"only, prints belong on standard error{words}"
                ) from error
        return answer

    def _noted(self, message: pb.FromPlugin) -> pb.FromPlugin | None:
        """Take in a note; an answer is given back."""
        if message.HasField("log"):
            tell = getattr(log, _LEVELS.get(message.log.level, "info"))
            for line in self._notes.take(message.log.message.encode() + b"\n", time.monotonic()):
                tell("plugin", line=line)
            return None
        if message.HasField("waiting"):
            self._problem("plugin", message.waiting.message or None)
            return None
        return message

    def _late(self, deadline: "_Deadline") -> str:
        asked, pending = self._conversation.asked, self._conversation.pending
        part = f"; of an answer only a part has come, {shown(pending)}" if pending else ""
        why = ", in which the task was to stop" if deadline.hurried else ""
        return f"the plugin has not answered {asked!r} within {deadline.limit_s:g} s{why}{part}{self._quoted()}"

    def _gone(self, asked: str | None) -> str:
        part = ", in the middle of an answer" if self._conversation.pending else ""
        return f"the plugin {self._child.ending()} while it was to {asked}{part}{self._quoted()}"

    def _quoted(self) -> str:
        words = self._child.last_words()
        return f"; the last it printed: {words}" if words else ""

    def stop(self) -> None:
        """Have the plugin release what it has and end; one that does not is killed."""
        began, limit_s = time.monotonic(), self._settings.stop_timeout_ms / 1000
        try:
            if not self.failed:
                self.ask(pb.ToPlugin(stop=pb.Stop()), timeout_s=limit_s)
                self._child.close_input()
                if not self._child.ended_within(max(ANSWERED_S, limit_s - (time.monotonic() - began))):
                    log.warning("the plugin did not end after its stop and is killed", pid=self.pid)
        except Exception as error:
            log.warning("the plugin did not stop in order and is killed", pid=self.pid, reason=str(error))
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process and all it started."""
        self.failed = True
        self._problem("plugin", None)
        self._child.end()


class _Deadline:
    """Until when an answer is waited for, which is sooner once the task is to stop."""

    def __init__(self, limit_s: float, stop_s: float, stopping: Callable[[], bool]) -> None:
        self.limit_s = limit_s
        self.hurried = False
        self._stop_s = stop_s
        self._stopping = stopping
        self._at = time.monotonic() + limit_s

    def left_s(self) -> float:
        """How long there is left."""
        if not self.hurried and self._stopping():
            self.hurried = True
            hurried = time.monotonic() + self._stop_s
            if hurried < self._at:
                self._at, self.limit_s = hurried, self._stop_s
        return self._at - time.monotonic()
