"""A table kept small: files joined and old versions removed

Every merge rewrites the files it touches and every append adds one, so without upkeep a table becomes many small files
and a long tail of files that no version needs. It runs in the writer's own turn, between two commits: an optimisation
that runs beside a merge would make one of the two fail. When it is due is read off the table's version: a job that is
started every hour, or restarted often, never makes many commits itself.

Old files are kept for a while because a reader may still work with the version that lists them, and would fail without
them. How long is the job's setting; where the table itself asks for more (`delta.deletedFileRetentionDuration`), the
table wins, since its readers count on that.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

log = structlog.get_logger("tidemill.spark.upkeep")

RETENTION_PROPERTY = "delta.deletedFileRetentionDuration"
_INTERVAL = re.compile(r"\s*(?:interval\s+)?(\d+)\s+(second|minute|hour|day|week)s?\s*", re.IGNORECASE)
_UNIT_S = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPlan:
    """When to do what; 0 commits means never."""

    compact_interval_commits: int
    vacuum_interval_commits: int
    retention_hours: int

    def due(self, before: int, version: int) -> tuple[bool, bool]:
        """Whether to compact and whether to vacuum when a table's version went from `before` to `version`.

        >>> UpkeepPlan(compact_interval_commits=2, vacuum_interval_commits=3, retention_hours=24).due(4, 7)
        (True, True)
        """
        compact, vacuum = (
            bool(interval) and version // interval > before // interval
            for interval in (self.compact_interval_commits, self.vacuum_interval_commits)
        )
        return compact, vacuum

    def kept_hours(self, configuration: Mapping[str, str | None]) -> int:
        """For how long files of old versions are kept in a table with these properties, in whole hours.

        >>> plan = UpkeepPlan(compact_interval_commits=0, vacuum_interval_commits=9, retention_hours=24)
        >>> plan.kept_hours({}), plan.kept_hours({"delta.deletedFileRetentionDuration": "interval 7 days"})
        (24, 168)
        """
        match = _INTERVAL.fullmatch(configuration.get(RETENTION_PROPERTY) or "")
        asked_s = int(match[1]) * _UNIT_S[match[2].lower()] if match else 0
        return max(self.retention_hours, -(-asked_s // 3_600))


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkept:
    """What was done for a table after one commit."""

    compacted: bool = False
    vacuumed: bool = False
    failed: bool = False  # some of what was due


class Upkeep:
    """Watches the versions of one table and keeps it small."""

    def __init__(self, plan: UpkeepPlan) -> None:
        self._plan = plan
        self._version: int | None = None  # the last one heard of

    def committed(self, table: DeltaTable) -> Upkept:
        """Hear of a commit; do what is due. A failure is logged: the next turn tries again, the data is safe."""
        version = table.version()
        before, self._version = version - 1 if self._version is None else self._version, version
        compact, vacuum = self._plan.due(before, version)
        compacted = False
        try:
            if compact:
                done = table.optimize.compact()
                log.info("joined small files", removed=done["numFilesRemoved"], added=done["numFilesAdded"])
                compacted = True
            if vacuum:
                hours = self._plan.kept_hours(table.metadata().configuration)
                # delta-rs would enforce Delta's default of a week, in which a table that changes all over fills disks
                removed = table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
                table.cleanup_metadata()
                log.info("removed files of old versions", removed=len(removed), kept_hours=hours)
        except (DeltaError, OSError) as error:
            log.warning("upkeep failed", reason=str(error).split("\n", 1)[0])
            return Upkept(compacted=compacted, failed=True)
        return Upkept(compacted=compacted, vacuumed=vacuum)
