"""What keeps a task from its work although it has not failed

A task that waits (for its database, for the Kafka cluster, for a target that asked for patience) is RUNNING in Kafka
Connect's words, and those words are kept for the tools that know them. What is the matter stands beside them: one
sentence for people, since when, how often it was tried in vain and when it is tried next.

The same value goes from the task process to the worker, into the status topic and out by the REST API.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MESSAGE_MAX = 1_000
"""Characters of a message: it is told again with every change, and kept in the status topic."""


LATEST_MS = 253_402_300_799_999
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What stands in the way now."""

    message: str
    since_ms: int
    attempts: int = 0  # tries that failed since then; 0 where nothing is tried
    next_try_ms: int | None = None  # None: it goes on by itself once the cause is gone


def shortened(message: str) -> str:
    """The message in one line, cut where it is too long; what UTF-8 cannot carry, as of a file's name, is replaced."""
    line = " ".join(message.encode("utf-8", "replace").decode().split())
    return line if len(line) <= MESSAGE_MAX else line[: MESSAGE_MAX - 1] + "…"


def joined(problems: Iterable[Problem]) -> Problem | None:
    """One problem that tells them all, the oldest first; None when there are none."""
    found = sorted(problems, key=lambda each: each.since_ms)
    if len(found) < 2:
        return found[0] if found else None
    tries = [each.next_try_ms for each in found if each.next_try_ms is not None]
    return Problem(
        message=shortened("; ".join(each.message for each in found)),
        since_ms=found[0].since_ms,
        attempts=max(each.attempts for each in found),
        next_try_ms=min(tries, default=None),
    )


def sentence(problem: Problem) -> str:
    """The problem as one line of text, for those who show nothing else."""
    more = [f"since {iso(problem.since_ms)}"]
    if problem.attempts:
        more.append(f"{problem.attempts} attempt{'s' if problem.attempts > 1 else ''}")
    if problem.next_try_ms is not None:
        more.append(f"next try {iso(problem.next_try_ms)}")
    return f"{problem.message} ({', '.join(more)})"


def to_json(problem: Problem) -> dict[str, Any]:
    """The problem as an object with times in ISO 8601; what is not known is absent.

    >>> to_json(Problem(message="no database", since_ms=1_700_000_000_000))
    {'message': 'no database', 'since': '2023-11-14T22:13:20.000Z'}
    """
    shown: dict[str, Any] = {"message": problem.message, "since": iso(problem.since_ms)}
    if problem.attempts:
        shown["attempts"] = problem.attempts
    if problem.next_try_ms is not None:
        shown["next_try"] = iso(problem.next_try_ms)
    return shown


def from_json(content: object) -> Problem | None:
    """Read what `to_json` wrote; None for anything else."""
    if not isinstance(content, Mapping):
        return None
    message, since_ms = content.get("message"), _milliseconds(content.get("since"))
    attempts = content.get("attempts", 0)
    if not isinstance(message, str) or since_ms is None or not isinstance(attempts, int):
        return None
    return Problem(
        message=shortened(message),
        since_ms=since_ms,
        attempts=attempts,
        next_try_ms=_milliseconds(content.get("next_try")),
    )


def iso(time_ms: int) -> str:
    """A moment in ISO 8601, UTC, to the millisecond; one after the last that can be written is that one."""
    time_ms = max(0, min(time_ms, LATEST_MS))
    moment = datetime.fromtimestamp(time_ms // 1000, UTC).replace(microsecond=time_ms % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _milliseconds(text: object) -> int | None:
    try:
        moment = datetime.fromisoformat(str(text)).astimezone(UTC)
        return int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000
    except (ValueError, OverflowError):
        return None
