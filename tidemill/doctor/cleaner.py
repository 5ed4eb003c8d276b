"""The logs that the broker cannot compact, as it has written them down

A broker that fails to compact a log keeps serving it and tries again, so nothing stops and nobody notices, until the
disk is full. It keeps a list in its data folder (docs/formats/log.md) as long as there is something to list; this
reads it, beside a running broker or after it.
"""

import json
from pathlib import Path

from tidemill.doctor import judge
from tidemill.doctor.judge import Finding, UncleanableLog

FAILURES = "cleaner-failures.json"
DATA_FOLDER_MARK = "meta.properties"


def examine_cleaner(path: Path, now_ms: int) -> list[Finding]:
    """What is known about the logs under `path`; nothing if no broker has ever used that folder."""
    if not (path / DATA_FOLDER_MARK).exists():
        return []
    try:
        return [judge.cleaner(_read(path / FAILURES), now_ms)]
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        return [judge.cleaner_unknown(str(path / FAILURES), str(error) or type(error).__name__)]


def _read(file: Path) -> list[UncleanableLog]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [
        UncleanableLog(
            name=f"{row['topic']}-{row['partition']}",
            reason=str(row["reason"]),
            attempts=int(row["attempts"]),
            since_ms=int(row["since_ms"]),
            retry_at_ms=int(row["retry_at_ms"]),
        )
        for row in json.loads(text)["logs"]
    ]
