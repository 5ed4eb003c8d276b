"""Why a streaming query failed, read from what Spark says about it

Python errors of a source come back from Spark as text inside a Java exception: a traceback whose last line names the
class in full. This file finds that line and the class; what follows from the error is the class's to say, wherever the
error was raised:

- `permanent`: it would come again after a restart, so somebody has to decide something (a right, a column's type,
  damaged bytes). All others may pass by themselves (a broker or a disk that is away).
- `needs_new_jvm`: the JVM is not to be trusted with another query.
"""

import functools
import importlib
import re
import traceback
from dataclasses import dataclass
from typing import ClassVar

_JVM_ERROR = re.compile(r"\bjava\.lang\.(?:(?:StackOverflow|OutOfMemory|Internal|Unknown)Error|ThreadDeath)\b")
"""What Java counts as the failure of its virtual machine, and the death of a thread."""

_PACKAGE = __name__.partition(".")[0]
_OURS = re.compile(rf"^(?P<module>{_PACKAGE}(?:\.[a-z_]+)+)\.(?P<name>[A-Z]\w*)(?:: (?P<message>.+))?$", re.MULTILINE)
_MESSAGE_LENGTH_MAX = 500
_DETAIL_LENGTH_MAX = 8_000


class JvmDied(RuntimeError):
    """The JVM is gone or does not answer."""


class JvmFailed(RuntimeError):
    """The JVM said of itself that it failed."""

    needs_new_jvm: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The cause, in one line."""

    kind: type[BaseException]
    message: str
    detail: str = ""  # all that Spark said, for a cause that is not one of ours

    @property
    def is_ours(self) -> bool:
        """Whether the message says it all."""
        return not self.detail

    @property
    def needs_decision(self) -> bool:
        """Whether starting again without a change would fail again."""
        return bool(getattr(self.kind, "permanent", False))

    @property
    def needs_new_jvm(self) -> bool:
        """Whether the program has to end and start anew, rather than only its query."""
        return bool(getattr(self.kind, "needs_new_jvm", False))

    def __str__(self) -> str:
        return self.message


def failure_of(error: BaseException) -> Failure:
    """The cause of an exception that this program raised or that Spark raised for it."""
    if type(error).__module__.startswith(f"{_PACKAGE}."):
        return Failure(kind=type(error), message=_one_line(str(error)))
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    ours = failure_in(text)
    if ours is not None:
        return ours
    broken = _JVM_ERROR.search(text)
    if broken is not None:
        return Failure(kind=JvmFailed, message=f"the Spark JVM failed with {broken[0]}", detail=_detail(error))
    return Failure(kind=type(error), message=_one_line(str(error)), detail=_detail(error))


def failure_in(text: str) -> Failure | None:
    """The last of our own errors that a Java exception's text quotes, None when there is none."""
    for match in reversed(list(_OURS.finditer(text))):
        kind = _error_class(match["module"], match["name"])
        if kind is not None:
            return Failure(kind=kind, message=_one_line(match["message"] or match["name"]))
    return None


@functools.cache
def _error_class(module: str, name: str) -> type[BaseException] | None:
    """The class of ours that a traceback names, None when it is no error."""
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _detail(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-_DETAIL_LENGTH_MAX:]


def _one_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return line[:_MESSAGE_LENGTH_MAX]
