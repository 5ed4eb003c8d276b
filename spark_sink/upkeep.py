"""A table kept small: files joined and old versions removed

Every merge rewrites the files it touches and every append adds one, so without upkeep a table becomes many small files
and a long tail of files that no version needs. It runs in the writer's own turn, between two commits: an optimisation
that runs beside a merge would make one of the two fail.

Old files are kept for a while because a reader may still work with the version that lists them.
"""

from dataclasses import dataclass

import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

log = structlog.get_logger("tidemill.spark.upkeep")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPlan:
    """When to do what; 0 commits means never."""

    compact_interval_commits: int
    vacuum_interval_commits: int
    retention_hours: int

    def due(self, commits: int) -> tuple[bool, bool]:
        """Whether to compact and whether to vacuum after that many commits.

        >>> UpkeepPlan(compact_interval_commits=2, vacuum_interval_commits=3, retention_hours=24).due(6)
        (True, True)
        """
        compact, vacuum = self.compact_interval_commits, self.vacuum_interval_commits
        return bool(compact) and commits % compact == 0, bool(vacuum) and commits % vacuum == 0


class Upkeep:
    """Counts the commits of one table and keeps it small."""

    def __init__(self, plan: UpkeepPlan) -> None:
        self._plan = plan
        self._commits = 0

    def committed(self, table: DeltaTable) -> None:
        """Hear of a commit; do what is due. A failure is logged: the next turn tries again, the data is safe."""
        self._commits += 1
        compact, vacuum = self._plan.due(self._commits)
        try:
            if compact:
                done = table.optimize.compact()
                log.info("joined small files", removed=done["numFilesRemoved"], added=done["numFilesAdded"])
            if vacuum:
                removed = table.vacuum(self._plan.retention_hours, dry_run=False, enforce_retention_duration=False)
                table.cleanup_metadata()
                log.info("removed files of old versions", removed=len(removed))
        except (DeltaError, OSError) as error:
            log.warning("upkeep failed", reason=str(error).split("\n", 1)[0])
