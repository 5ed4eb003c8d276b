"""The loop around a job task: it owns its loop, so there is little to do

`run` is called on the main thread and returns when the job is told to stop. A job cannot hold still half-way, so a
pause stops it and a resume runs a new task object. `NotConnected` means to wait and run again; `RetryAfter` likewise,
after the time it names. A job that returns without having been told to has failed.
"""

import structlog
from pydantic import BaseModel

from tidemill.connect.api import Fatal, JobTask, NotConnected, Plugin, RetryAfter
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks.backoff import Backoff
from tidemill.connect.tasks.context import task_context
from tidemill.connect.tasks.control import PAUSE_CHECK_S, TaskControl
from tidemill.core.runtime.clock import Clock

log = structlog.get_logger("tidemill.connect.job")

RESTART_S_MAX = 60.0  # a job may be a program that takes long to start
HEALTHY_S = 60.0  # a job that ran this long starts over with short waits
SETTLED_S = 3.0  # a job that ran this long has got what it waited for

ABOUT = "job"


class JobRunner:
    """Runs one job until it is stopped or fails."""

    def __init__(self, plugin: Plugin, settings: BaseModel, spec: TaskSpec, control: TaskControl, clock: Clock) -> None:
        self._plugin = plugin
        self._settings = settings
        self._spec = spec
        self._control = control
        self._clock = clock
        self._backoff = Backoff(cap_s=RESTART_S_MAX)
        self._job: JobTask | None = None
        self._told = False  # to end, be it wanted again by now

    def run(self) -> None:
        """Return after a stop; raise what makes the task fail."""
        control = self._control
        if self._spec.config.get("transforms", "").strip():
            raise Fatal("the records of this connector do not pass through Connect: remove 'transforms'")
        control.on_change(self._heed)
        paused = False
        while not control.stopping:
            if paused != control.paused:
                paused = control.paused
                control.announce_start()
                control.announce_pause(paused)
            if paused:
                control.wait_while_paused(PAUSE_CHECK_S)
                continue
            self._run_once()

    def _heed(self) -> None:
        """Pass a wish on to the running job; called on the listener's thread."""
        job = self._job
        if job is not None and (self._control.stopping or self._control.paused):
            self._told = True
            try:
                job.stop()
            except Exception:
                log.exception("the job failed while it was asked to stop", task=str(self._spec.task))

    def _run_once(self) -> None:
        job = self._plugin.task(self._settings)
        if not isinstance(job, JobTask):
            raise TypeError(f"plugin {self._plugin.name} made a {type(job).__name__}, not a JobTask")
        self._told, self._job = False, job
        started = self._clock.monotonic()
        try:
            if not self._wanted:
                return  # the wish came before the job could hear it
            self._control.announce_start()
            job.run(task_context(self._spec, self._control, stopping=lambda: not self._wanted))
        except NotConnected as error:
            if self._clock.monotonic() - started > HEALTHY_S:
                self._backoff.reset()
            self._wait(self._backoff.next_s(), error)
            return
        except RetryAfter as retry:
            self._wait(retry.seconds, retry)
            return
        finally:
            self._job = None
        if self._wanted and not self._told:
            raise RuntimeError("the job ended although nobody had asked it to")

    @property
    def _wanted(self) -> bool:
        return not self._control.stopping and not self._control.paused

    def _wait(self, seconds: float, error: Exception) -> None:
        log.warning("job interrupted", task=str(self._spec.task), error=str(error), retry_s=seconds)
        self._control.problem(ABOUT, str(error), retry_s=seconds)
        self._control.wait(seconds)
        self._control.problem_over_in(ABOUT, SETTLED_S)
