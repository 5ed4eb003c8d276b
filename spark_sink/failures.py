"""Why a streaming query failed, read from what Spark says about it

Python errors of a source come back from Spark as text inside a Java exception: a traceback whose last line names the
class. This file finds that line and tells what may pass by itself (a broker that is away) from what needs a decision.
"""

import re
import traceback
from dataclasses import dataclass

NEEDS_DECISION = frozenset(
    {
        "SourceStopped",
        "DataLoss",
        "TopicRecreated",
        "NoKey",
        "BadChange",
        "SchemaConflict",
        "Fenced",
        "OptionError",
        "ValueMissing",
    }
)
"""Errors that would come again after a restart."""

NEEDS_NEW_JVM = frozenset({"Stalled", "JvmError"})
"""Errors after which the JVM is not to be trusted with another query."""

_JVM_ERROR = re.compile(r"\bjava\.lang\.(?:(?:StackOverflow|OutOfMemory|Internal|Unknown)Error|ThreadDeath)\b")
"""What Java counts as the failure of its virtual machine, and the death of a thread."""

_OURS = re.compile(r"^(?:\w+\.)*(?P<name>[A-Z]\w+): (?P<message>.+)$", re.MULTILINE)
_OUR_NAMES = NEEDS_DECISION | {
    "ClusterUnreachable",
    "UnknownTopic",
    "FetchFailed",
    "OffsetGap",
    "TableUnusable",
    "Stalled",
}
_MESSAGE_LENGTH_MAX = 500
_DETAIL_LENGTH_MAX = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The cause, in one line."""

    name: str
    message: str
    detail: str = ""  # all that Spark said, for a cause that is not one of ours

    @property
    def is_ours(self) -> bool:
        """Whether the message says it all."""
        return not self.detail

    @property
    def needs_decision(self) -> bool:
        """Whether starting again without a change would fail again."""
        return self.name in NEEDS_DECISION

    @property
    def needs_new_jvm(self) -> bool:
        """Whether the program has to end and start anew, rather than only its query."""
        return self.name in NEEDS_NEW_JVM

    def __str__(self) -> str:
        return self.message


def failure_of(error: BaseException) -> Failure:
    """The cause of an exception that this program raised or that Spark raised for it."""
    if type(error).__name__ in _OUR_NAMES:
        return Failure(name=type(error).__name__, message=_one_line(str(error)))
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    ours = failure_in(text)
    if ours is not None:
        return ours
    broken = _JVM_ERROR.search(text)
    if broken is not None:
        return Failure(name="JvmError", message=f"the Spark JVM failed with {broken[0]}", detail=_detail(error))
    return Failure(name=type(error).__name__, message=_one_line(str(error)), detail=_detail(error))


def failure_in(text: str) -> Failure | None:
    """The last of our own errors that a Java exception's text quotes, None when there is none."""
    found = [match for match in _OURS.finditer(text) if match["name"] in _OUR_NAMES]
    if not found:
        return None
    return Failure(name=found[-1]["name"], message=_one_line(found[-1]["message"]))


def _detail(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-_DETAIL_LENGTH_MAX:]


def _one_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return line[:_MESSAGE_LENGTH_MAX]
