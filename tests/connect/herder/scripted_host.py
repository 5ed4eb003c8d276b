"""A task host made of lists: what the herder asked for, and what the test lets happen"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tidemill.connect.task_spec import SettingProblem, TaskEvent, TaskExited, TaskId, TaskSpec, TaskStarted


class ScriptedHost:
    """Starts and stops nothing; says that it did."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.running: dict[TaskId, TaskSpec] = {}
        self.refuse: Exception | None = None  # raised by the next start
        self.silent = False  # whether started tasks keep it to themselves
        self.hold_stops = asyncio.Event()
        self.hold_stops.set()
        self.leases: list[float] = []
        self.answer: Any = []  # to what a plugin elsewhere is asked, or what is raised instead
        self._events: asyncio.Queue[TaskEvent] = asyncio.Queue()

    async def start_task(self, spec: TaskSpec) -> None:
        if self.refuse is not None:
            error, self.refuse = self.refuse, None
            raise error
        assert spec.task not in self.running, f"{spec.task} was started twice"
        self.calls.append(f"start {spec.task}")
        self.running[spec.task] = spec
        if not self.silent:
            self.say(TaskStarted(task=spec.task, incarnation=spec.incarnation, pid=1))

    async def stop_task(self, task: TaskId, grace_s: float) -> None:
        self.calls.append(f"stop {task}")
        await self.hold_stops.wait()
        self.exit(task, 0, "ended by itself")

    async def pause_task(self, task: TaskId) -> None:
        self.calls.append(f"pause {task}")

    async def resume_task(self, task: TaskId) -> None:
        self.calls.append(f"resume {task}")
        raise RuntimeError("a host with a bug")

    async def ask(
        self,
        about: str,
        plugin: str,
        config: Mapping[str, str],
        *,
        timeout_s: float,
        tasks_max: int = 1,
        environment: str,
    ) -> Any:
        self.calls.append(f"{about} of {plugin} in {environment}")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def validate(
        self, plugin: str, config: Mapping[str, str], *, timeout_s: float, environment: str
    ) -> tuple[SettingProblem, ...]:
        return (SettingProblem("file", f"{plugin} does not like it"),)

    def let_go(self, environment: str) -> None:
        self.calls.append(f"let go {environment}")

    def lease(self, until_s: float) -> None:
        self.leases.append(until_s)

    async def events(self) -> AsyncIterator[TaskEvent]:
        while True:
            yield await self._events.get()

    def say(self, event: TaskEvent) -> None:
        self._events.put_nowait(event)

    def exit(self, task: TaskId, returncode: int, reason: str) -> None:
        spec = self.running.pop(task)
        self.say(TaskExited(task=task, incarnation=spec.incarnation, returncode=returncode, reason=reason))
