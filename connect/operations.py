"""Everything the REST API can do, without HTTP

One method per endpoint of Kafka Connect's API: reads show the herder's state as entities, writes check, then hand a
command to the herder and answer when it is in force. What cannot be done is a `RestError` with the status and the very
text that Connect's clients match. Reads never wait for anything but memory; only the offsets of sinks are asked from
the cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from tidemill.connect.api import Plugin, PluginKind
from tidemill.connect.config import WorkerConfig
from tidemill.connect.entities import (
    ConfigInfos,
    ConfigKeyInfo,
    ConnectorHistory,
    ConnectorInfo,
    ConnectorOffset,
    ConnectorOffsets,
    ConnectorState,
    ConnectorStateInfo,
    GroupInfo,
    GroupWorker,
    HistoryOfWorker,
    InstanceHistory,
    PluginInfo,
    ProblemInfo,
    RunInfo,
    TaskInfo,
    TaskKey,
    TaskState,
)
from tidemill.connect.herder import sink_offsets
from tidemill.connect.herder.commands import (
    Command,
    Configure,
    Conflict,
    Create,
    Delete,
    NotFound,
    Restart,
    RestartPlan,
    SetLogLevel,
    SetTarget,
    SubmitTasks,
    patched,
    plan_restart,
)
from tidemill.connect.herder.events import ForgetTopics, RestartConnector, RestartTask
from tidemill.connect.herder.history import Run
from tidemill.connect.herder.office import NotInOffice
from tidemill.connect.herder.offsets import flat
from tidemill.connect.herder.placement import CONNECTOR
from tidemill.connect.herder.service import Herder
from tidemill.connect.herder.state import Submitted
from tidemill.connect.loader import NoSuchVersion, Plugins, UnknownPlugin
from tidemill.connect.problem import Problem, iso, joined, sentence, shortened, to_json
from tidemill.connect.request_target import NO_LEADER
from tidemill.connect.stand_in import environment_of
from tidemill.connect.stores import InstanceStatus, RestartRequest, State, TargetState
from tidemill.connect.task_spec import TaskId
from tidemill.connect.topic_log import RecordTooLarge, TopicLogError
from tidemill.connect.transforms import registry
from tidemill.connect.validation import Submitted as Candidate
from tidemill.connect.validation import Validator, key_infos

log = structlog.get_logger("tidemill.connect.operations")

BEHIND_SHOWN_MS = 2_000
"""What is read in less time than this is no problem."""

PATCH_ATTEMPTS = 3
"""A PATCH that meets a concurrent change is computed again this often before it is refused."""

UNSHOWN_FACTS = frozenset({"topics"})
"""Facts of a task that are not part of its status: the topics in use have an endpoint of their own."""

STOP_WAIT_S = 10.0
"""How long a change of offsets waits for the last tasks of a connector that was just stopped."""

MISSING_STOPPED = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified "
    "connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
)

PLUGIN_MISSING = (
    "The offsets of connector {name} are not changed: its plugin is missing, which tells whether they are those of a "
    "source or of a sink. {error}"
)

WRITE_FAILED = (
    "Failed to write to config topic; this may be due to a transient error and the request can be safely retried"
)


REBALANCE = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"

TOO_LARGE = "This does not fit into a record of the worker's topic"

TARGET_ACTS = {
    TargetState.STARTED: "connector resumed",
    TargetState.PAUSED: "connector paused",
    TargetState.STOPPED: "connector stopped",
}
"""What the log says of each."""


class RestError(Exception):
    """An answer of 400 or above."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class OfficeLost(RestError):
    """This worker leads its group no more, and has changed nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A connector after a write; `created` tells 201 from 200."""

    info: ConnectorInfo
    created: bool


class Operations:
    """The API of one worker."""

    def __init__(
        self,
        herder: Herder,
        plugins: Plugins,
        validator: Validator,
        config: WorkerConfig,
        look: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._herder = herder
        self._plugins = plugins
        self._validator = validator
        self._config = config
        self._look = look  # for plugins that were installed a moment ago
        self._doubts: dict[str, tuple[int, tuple[str, ...] | None]] = {}  # by connector: version, its warnings

    # ------------------------------------------------------------------- reads

    def group(self) -> GroupInfo:
        """The workers that share the work, as this one knows them."""
        seat = self._herder.seat
        since_ms = seat.unsettled_ms if seat.unsettled_ms is not None else seat.settled_ms
        reason, for_ms = seat.trouble
        troubles = [] if self._herder.topic_problem is None else [self._herder.topic_problem]
        if reason:
            troubles.append(Problem(message=reason, since_ms=self._herder.now_ms() - for_ms))
        late, late_ms = seat.behind
        if late_ms >= BEHIND_SHOWN_MS:
            troubles.append(Problem(message=late, since_ms=self._herder.now_ms() - late_ms))
        trouble = joined(troubles)
        urls = sorted(seat.workers.values())
        plan = seat.assigned
        return GroupInfo(
            group=self._config.group_id,
            url=seat.url,
            leader=seat.leader_url,
            generation=seat.generation,
            phase=seat.phase,
            since=iso(self._herder.now_ms() - (since_ms or 0)),
            workers=tuple(
                GroupWorker(
                    url=url,
                    connectors=sum(holder == url and each.task == CONNECTOR for each, holder in plan.items()),
                    tasks=sum(holder == url and each.task != CONNECTOR for each, holder in plan.items()),
                )
                for url in urls
            ),
            problem=None if trouble is None else ProblemInfo(**to_json(trouble)),
        )

    def names(self) -> list[str]:
        """Every connector."""
        return self._herder.machine.state.names()

    def info(self, name: str) -> ConnectorInfo:
        """The connector's configuration and tasks."""
        submitted = self._submitted(name)
        return ConnectorInfo(
            name=name,
            config=dict(submitted.config),
            tasks=tuple(TaskKey(connector=name, task=task) for task in range(self._task_count(name))),
            type=self._type(submitted.config),
        )

    def config(self, name: str) -> dict[str, str]:
        """The connector's configuration as submitted."""
        return dict(self._submitted(name).config)

    def tasks(self, name: str) -> list[TaskInfo]:
        """The connector's tasks and their configurations."""
        self._submitted(name)
        configs = self._herder.machine.state.tasks(name)
        return [
            TaskInfo(id=TaskKey(connector=name, task=task), config=dict(config)) for task, config in enumerate(configs)
        ]

    def status(self, name: str, plan: RestartPlan | None = None) -> ConnectorStateInfo:
        """What the connector and its tasks are; those in `plan` are about to restart.

        The status topic may still tell of one that was deleted, until the last of its tasks has ended.
        """
        board = self._herder.machine.board
        submitted, status = self._herder.machine.state.submitted(name), board.instance(name)
        if submitted is None or status is None:
            raise RestError(404, f"No status found for connector {name}")
        connector_restarts = plan is not None and plan.connector
        tasks = []
        problems = {}
        for task in range(self._task_count(name)):
            task_status = board.instance(name, task)
            if task_status is not None:
                tasks.append(self._task_state(task_status, restarts=plan is not None and task in plan.tasks))
                problem = self._problem(task_status)
                if problem is not None:
                    problems[task] = problem
        problem = _of_tasks(problems)
        return ConnectorStateInfo(
            name=name,
            connector=self._connector_state(status, submitted, problem, restarts=connector_restarts),
            tasks=tuple(tasks),
            type=self._type(submitted.config),
            problem=_problem_info(problem),
            warnings=self._warnings(name, submitted),
        )

    def _warnings(self, name: str, submitted: Submitted) -> tuple[str, ...] | None:
        """What is doubtful in the configuration; worked out once for each version of it."""
        offset, warnings = self._doubts.get(name, (-1, None))
        if offset != submitted.offset:
            plugin = self._of(submitted.config)
            found = [] if plugin is None else self._validator.warnings(plugin, submitted.config)
            warnings = tuple(warning.text for warning in found) or None
            self._doubts[name] = (submitted.offset, warnings)
        return warnings

    def task_status(self, name: str, task: int) -> TaskState:
        """What one task is."""
        status = self._herder.machine.board.instance(name, task)
        if status is None or task >= self._task_count(name):
            raise RestError(404, f"No status found for task {name}-{task}")
        return self._task_state(status, restarts=False)

    def _task_state(self, status: InstanceStatus, *, restarts: bool) -> TaskState:
        assert status.task is not None
        facts = self._herder.machine.facts.get(TaskId(status.connector, status.task), {})
        shown = {name: value for name, value in facts.items() if value is not None and name not in UNSHOWN_FACTS}
        problem = self._problem(status)
        state = _state(status, problem, restarts=restarts)
        return TaskState(id=status.task, problem=_problem_info(problem), facts=shown or None, **state)

    def _connector_state(
        self, status: InstanceStatus, submitted: Submitted, problem: Problem | None, *, restarts: bool
    ) -> ConnectorState:
        state = _state(status, problem, restarts=restarts)
        if status.version is None:  # it was created stopped and has never run
            plugin = self._of(submitted.config)
            state["version"] = None if plugin is None else plugin.version
        return ConnectorState(**state)

    def _problem(self, status: InstanceStatus) -> Problem | None:
        """What keeps a task from its work: as it says itself if it runs here, else as the status topic has it."""
        assert status.task is not None
        task = TaskId(status.connector, status.task)
        machine = self._herder.machine
        if status.state is State.RUNNING and status.worker_id == machine.worker_id:
            placeless = self._placeless()
            if placeless is not None:
                return placeless
        return machine.problems.get(task) if task in machine.runs else status.problem

    def _placeless(self) -> Problem | None:
        """What keeps all tasks of a worker from their work that has no place in its group: others may do it."""
        seat = self._herder.seat
        if seat.holds_lease:
            return None
        reason, for_ms = seat.trouble
        message = f"this worker has no place in group {self._config.group_id!r}; the task runs when it has one"
        return Problem(
            message=shortened(f"{message}: {reason}" if reason else message),
            since_ms=self._herder.now_ms() - (for_ms or seat.unsettled_ms or 0),
        )

    def history(self, name: str) -> ConnectorHistory:
        """What this worker has run of the connector, which need not exist as far as it knows."""
        machine, url = self._herder.machine, self._herder.seat.url
        since_ms = machine.history.since_ms
        if since_ms is None:
            here = HistoryOfWorker(url=url, problem="it has no place in its group yet")
        else:
            here = HistoryOfWorker(url=url, since=iso(since_ms))
        found = {
            task: InstanceHistory(id=task, runs=tuple(_run_info(run, machine.worker_id) for run in runs))
            for task, runs in machine.history.of(name).items()
        }
        return ConnectorHistory(
            name=name,
            workers=(here,),
            connector=found.pop(None, InstanceHistory()),
            tasks=tuple(found[task] for task in sorted(task for task in found if task is not None)),
        )

    def topics(self, name: str) -> list[str]:
        """Topics the connector has used."""
        if not self._config.topic_tracking:
            raise RestError(403, "Topic tracking is disabled.")
        return self._herder.machine.board.topics(name)

    def reset_topics(self, name: str) -> None:
        """Empty the record of topics the connector has used."""
        if not self._config.topic_tracking:
            raise RestError(403, "Topic tracking is disabled.")
        if not self._config.topic_tracking_reset:
            raise RestError(403, "Topic tracking reset is disabled.")
        self._herder.tell(ForgetTopics(connector=name))
        log.info("topics in use forgotten", connector=name)

    def _submitted(self, name: str) -> Submitted:
        submitted = self._herder.machine.state.submitted(name)
        if submitted is None:
            raise RestError(404, f"Connector {name} not found")
        return submitted

    def _task_count(self, name: str) -> int:
        return len(self._herder.machine.state.tasks(name))

    def _type(self, config: Mapping[str, str]) -> str:
        try:
            return self._plugins.find(config.get("connector.class", "")).kind.value
        except UnknownPlugin:
            return "unknown"

    # ------------------------------------------------------------------ writes

    async def create(self, name: str, config: Candidate, initial_state: TargetState | None) -> Written:
        """POST /connectors."""
        named = _named(name, config)
        if self._herder.machine.state.submitted(name) is not None:
            raise RestError(409, f"Connector {name} already exists")
        checked = await self._checked(named)
        await self._command(Create(connector=name, config=checked, initial_state=initial_state))
        return self._written(name, created=True)

    async def configure(self, name: str, config: Candidate) -> Written:
        """PUT …/config."""
        checked = await self._checked(_named(name, config))
        created = await self._command(Configure(connector=name, config=checked))
        return self._written(name, created=created)

    def _written(self, name: str, *, created: bool) -> Written:
        submitted = self._submitted(name)
        shown = submitted.config.get("connector.class")
        act = "connector created" if created else "connector changed"
        log.info(act, connector=name, connector_class=shown)
        info = self.info(name).model_copy(update={"warnings": self._warnings(name, submitted)})
        return Written(info=info, created=created)

    async def patch(self, name: str, patch: Candidate) -> ConnectorInfo:
        """PATCH …/config."""
        for attempt in range(PATCH_ATTEMPTS):
            submitted = self._submitted(name)
            checked = await self._checked(_named(name, patched(submitted.config, patch)))
            command = Configure(connector=name, config=checked, seen_offset=submitted.offset)
            try:
                await self._command(command)
                break
            except RestError as error:
                if error.status != 409 or attempt == PATCH_ATTEMPTS - 1:
                    raise
        return self._written(name, created=False).info

    async def set_target(self, name: str, target: TargetState) -> None:
        """Pause, resume, stop."""
        await self._command(SetTarget(connector=name, target=target))
        log.info(TARGET_ACTS[target], connector=name)

    async def delete(self, name: str) -> None:
        """DELETE /connectors/{name}."""
        submitted = self._herder.machine.state.submitted(name)
        plugin = None if submitted is None else self._of(submitted.config)
        left: Sequence[str] = ()
        if submitted is not None and plugin is not None:
            left = await self._herder.calls.left_behind(plugin, submitted.config)
        await self._command(Delete(connector=name))
        self._doubts.pop(name, None)
        log.info("connector deleted", connector=name)
        for each in left:
            log.warning("the deleted connector leaves something behind", connector=name, left=each)

    async def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStateInfo | None:
        """POST …/restart; None when only the connector itself was asked for."""
        if self._herder.machine.state.submitted(name) is None:
            raise RestError(404, f"Unknown connector: {name}")
        if not include_tasks and not only_failed and self._herder.has(name):
            self._herder.tell(RestartConnector(connector=name))
            log.info("connector restarted", connector=name, include_tasks=False, only_failed=False)
            return None
        request = RestartRequest(connector=name, include_tasks=include_tasks, only_failed=only_failed)
        machine = self._herder.machine
        answer = self.status(name, plan_restart(machine.state, machine.board, request))
        await self._command(Restart(connector=name, include_tasks=include_tasks, only_failed=only_failed))
        log.info("connector restarted", connector=name, include_tasks=include_tasks, only_failed=only_failed)
        return answer if include_tasks or only_failed else None

    def restart_task(self, name: str, task: int) -> None:
        """POST …/tasks/{n}/restart."""
        if self._herder.machine.state.submitted(name) is None:
            raise RestError(404, f"Unknown connector: {name}")
        if task >= self._task_count(name):
            raise RestError(404, f"Unknown task: {name}-{task}")
        if not self._herder.has(name, task):
            raise RestError(409, self._elsewhere(name, task))
        self._herder.tell(RestartTask(task=TaskId(name, task)))
        log.info("task restarted", task=str(TaskId(name, task)))

    async def submit_tasks(self, name: str, tasks: tuple[Mapping[str, str], ...], made_from: int | None) -> None:
        """POST …/tasks: what another worker's plugin made of the connector's configuration."""
        await self._command(SubmitTasks(connector=name, tasks=tasks, seen_offset=made_from))

    def _elsewhere(self, name: str, task: int) -> str:
        """Why this worker cannot do something with a task."""
        url = self._herder.seat.holder_url(name, task)
        if url is None or url == self._herder.seat.url:
            return REBALANCE
        return f"Task {name}-{task} runs on another worker of the group: send the request to {url}"

    async def set_cluster_level(self, logger: str, level: str) -> None:
        """Set a log level on every worker."""
        await self._command(SetLogLevel(logger=logger, level=level))
        log.info("log level set on every worker", logger_name=logger, level_wanted=level)

    async def _command(self, command: Command) -> bool:
        try:
            return (await self._herder.command(command)).created
        except NotFound as error:
            raise RestError(404, str(error)) from error
        except Conflict as error:
            raise RestError(409, str(error)) from error
        except NotInOffice as error:
            raise OfficeLost(409, NO_LEADER) from error
        except RecordTooLarge as error:
            raise RestError(413, f"{TOO_LARGE}: {error}") from error
        except TopicLogError as error:
            log.error("command not carried out", command=type(command).__name__, reason=str(error))
            raise RestError(500, f"{WRITE_FAILED}: {error}") from error

    async def _checked(self, config: Candidate) -> dict[str, str]:
        """The configuration, if there is nothing wrong with it."""
        await self.look()
        infos = await self._validator.validate(self._plugin(config), config)
        if infos.error_count:
            lines = [
                f"Connector configuration is invalid and contains the following {infos.error_count} error(s):",
                *infos.problems(),
                "You can also find the above list of errors at the endpoint "
                "`/connector-plugins/{connectorType}/config/validate`",
            ]
            raise RestError(400, "\n".join(lines))
        return {name: value for name, value in config.items() if value is not None}

    # ----------------------------------------------------------------- plugins

    async def look(self) -> None:
        """See which plugins there are now."""
        if self._look is not None:
            await self._look()

    def users(self) -> dict[str, list[str]]:
        """Connectors by the plugin environment that their tasks would run in."""
        found: dict[str, list[str]] = {}
        for name in self.names():
            submitted = self._herder.machine.state.submitted(name)
            plugin = None if submitted is None else self._of(submitted.config)
            if plugin is not None:
                found.setdefault(environment_of(plugin), []).append(name)
        return found

    def plugins(self, *, connectors_only: bool) -> list[PluginInfo]:
        """What can be run; with `connectors_only` off, converters, transformations and predicates too."""
        infos = [_plugin_info(plugin) for plugin in self._plugins]
        if connectors_only:
            return infos
        return [*infos, *CONVERTER_PLUGINS, *map(_plugin_info, registry.available())]

    def plugin_config(self, name: str, version: str = "") -> list[ConfigKeyInfo]:
        """The plugin's own settings, in the newest version of those that are asked for."""
        plugin: Plugin | None
        try:
            plugin = self._plugins.find(name, version)
        except NoSuchVersion as error:
            raise RestError(404, str(error)) from None
        except UnknownPlugin:
            plugin = registry.find(name)
        if plugin is None:
            raise RestError(404, f"Unknown plugin {name}.")
        return key_infos(plugin)

    async def validate(self, plugin_name: str, config: Candidate) -> ConfigInfos:
        """PUT /connector-plugins/{p}/config/validate."""
        await self.look()
        plugin = self._plugin(config)
        included = str(config["connector.class"])
        if not _normalised(included).endswith(_normalised(plugin_name)) and self._name(plugin_name) != plugin.name:
            raise RestError(400, f"Included connector type {included} does not match request type {plugin_name}")
        return await self._validator.validate(plugin, config)

    def _plugin(self, config: Candidate) -> Plugin:
        name = (config.get("connector.class") or "").strip()
        if not name:
            shown = ", ".join(f"{key}={'null' if value is None else value}" for key, value in config.items())
            raise RestError(400, f"Connector config {{{shown}}} contains no connector type")
        try:
            return self._plugins.find(name, config.get("connector.plugin.version") or "")
        except NoSuchVersion:
            return self._plugins.find(name)  # the judgement on the configuration says so, beside all else
        except UnknownPlugin as error:
            raise RestError(400, str(error)) from None

    def _of(self, config: Mapping[str, str]) -> Plugin | None:
        try:
            return self._plugins.of(config)
        except UnknownPlugin:
            return None

    def _name(self, name: str) -> str | None:
        try:
            return self._plugins.find(name).name
        except UnknownPlugin:
            return None

    # ----------------------------------------------------------------- offsets

    async def offsets(self, name: str) -> ConnectorOffsets:
        """How far the connector got."""
        submitted = self._submitted(name)
        if self._is_sink(submitted):
            found = await self._cluster(sink_offsets.committed, self._group(name, submitted))
            return ConnectorOffsets(
                offsets=tuple(
                    ConnectorOffset(
                        partition={sink_offsets.TOPIC: each.topic, sink_offsets.PARTITION: each.partition},
                        offset={sink_offsets.OFFSET: each.offset},
                    )
                    for each in found
                )
            )
        return ConnectorOffsets(
            offsets=tuple(
                ConnectorOffset(partition=dict(stored.partition), offset=dict(stored.offset))
                for stored in self._herder.offsets.stored(name)
            )
        )

    async def alter_offsets(self, name: str, changes: Sequence[ConnectorOffset]) -> str:
        """PATCH …/offsets; the message of success."""
        if not changes:
            raise RestError(400, "Partitions / offsets need to be provided for an alter offsets request")
        submitted = await self._stopped(name)
        if self._writes_as_sink(name, submitted):
            try:
                wanted = [sink_offsets.parse_entry(each.partition, each.offset) for each in changes]
            except sink_offsets.BadSinkOffset as error:
                raise RestError(400, str(error)) from None
            await self._cluster(sink_offsets.alter, self._group(name, submitted), wanted)
        else:
            for each in changes:
                if not flat(each.partition) or not flat(each.offset or {}):
                    raise RestError(400, "A source partition and its offset must be flat maps of primitive values")
            pairs = [(each.partition, each.offset) for each in changes]
            await self._rewrite(name, submitted, lambda: self._herder.offsets.altered(name, pairs))
        log.info("offsets altered", connector=name, partitions=len(changes))
        return "The offsets for this connector have been altered successfully"

    async def reset_offsets(self, name: str) -> str:
        """DELETE …/offsets; the message of success."""
        submitted = await self._stopped(name)
        if self._writes_as_sink(name, submitted):
            await self._cluster(sink_offsets.reset, self._group(name, submitted))
        else:
            await self._rewrite(name, submitted, lambda: self._herder.offsets.reset(name))
        log.info("offsets reset", connector=name)
        return "The offsets for this connector have been reset successfully"

    async def _rewrite(
        self, name: str, submitted: Submitted, change: Callable[[], Sequence[tuple[bytes, bytes | None]]]
    ) -> None:
        try:
            await self._herder.write_offsets(name, submitted, change)
        except Conflict as error:
            raise RestError(409, str(error)) from error
        except NotInOffice as error:
            raise OfficeLost(409, NO_LEADER) from error
        except RecordTooLarge as error:
            raise RestError(413, f"{TOO_LARGE}: {error}") from error
        except TopicLogError as error:
            raise RestError(500, str(error)) from error

    async def _stopped(self, name: str) -> Submitted:
        """Insist that the connector is stopped and wait for the last of its tasks."""
        await self.look()
        submitted = self._submitted(name)
        if self._herder.machine.state.target(name) is not TargetState.STOPPED:
            raise RestError(400, MISSING_STOPPED.format(name=name))
        try:
            ended = await self._herder.quiet(name, STOP_WAIT_S)
        except NotInOffice as error:
            raise OfficeLost(409, NO_LEADER) from error
        if not ended:
            raise RestError(500, f"The tasks of connector {name} have not ended yet; try again in a moment.")
        return submitted

    def _is_sink(self, submitted: Submitted) -> bool:
        return self._type(submitted.config) == PluginKind.SINK.value

    def _writes_as_sink(self, name: str, submitted: Submitted) -> bool:
        """Whether a change is for its consumer group; who does not know must change neither that nor a source's."""
        try:
            return self._plugins.find(submitted.config.get("connector.class", "")).kind is PluginKind.SINK
        except UnknownPlugin as error:
            raise RestError(400, PLUGIN_MISSING.format(name=name, error=error)) from None

    def _group(self, name: str, submitted: Submitted) -> str:
        return submitted.config.get("consumer.override.group.id", f"connect-{name}")

    async def _cluster(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Ask the cluster about a consumer group, on a thread."""
        timeout_s = self._config.request_timeout_ms / 1000
        try:
            return await asyncio.to_thread(call, self._config.client, *arguments, timeout_s)
        except sink_offsets.GroupFailed as error:
            raise RestError(500, str(error)) from error


CONVERTER_PLUGINS: tuple[PluginInfo, ...] = tuple(
    PluginInfo(plugin_class=name, type="converter", version=None)
    for name in (
        "org.apache.kafka.connect.converters.ByteArrayConverter",
        "org.apache.kafka.connect.json.JsonConverter",
        "org.apache.kafka.connect.storage.StringConverter",
    )
)


def _plugin_info(plugin: Plugin) -> PluginInfo:
    return PluginInfo(plugin_class=plugin.name, type=plugin.kind.value, version=plugin.version)


def _named(name: str, config: Candidate) -> dict[str, str | None]:
    """The configuration with the name of the URL in it; refuses another name."""
    given = config.get("name", name)
    if given != name:
        raise RestError(400, f"Connector name configuration ({given}) doesn't match connector name in the URL ({name})")
    return {**config, "name": name}


def _normalised(plugin: str) -> str:
    return plugin.removesuffix("Connector")


def _state(status: InstanceStatus, problem: Problem | None, *, restarts: bool) -> dict[str, Any]:
    trace = status.trace or None
    if trace is None and problem is not None:
        trace = sentence(problem)  # what tools made for Apache's worker show
    return {
        "state": State.RESTARTING.value if restarts else status.state.value,
        "worker_id": status.worker_id,
        "trace": trace,
        "version": status.version,
        "failure": None if status.failure is None or restarts else status.failure.value,
    }


def _run_info(run: Run, worker_id: str) -> RunInfo:
    return RunInfo(
        worker_id=worker_id,
        generation=run.generation,
        started=iso(run.started_ms),
        ended=None if run.ended_ms is None else iso(run.ended_ms),
        ran_ms=None if run.ended_ms is None else max(0, run.ended_ms - run.started_ms),
        failure=None if run.failure is None else run.failure.value,
        reason=run.reason,
        next_try=None if run.next_try_ms is None else iso(run.next_try_ms),
    )


def _problem_info(problem: Problem | None) -> ProblemInfo | None:
    return None if problem is None else ProblemInfo(**to_json(problem))


def _of_tasks(problems: Mapping[int, Problem]) -> Problem | None:
    """The problem of a connector: those of its tasks, each different one once, with the tasks that have it."""
    by_message: dict[str, list[int]] = {}
    for task, problem in problems.items():
        by_message.setdefault(problem.message, []).append(task)
    return joined(
        replace(
            min((problems[task] for task in tasks), key=lambda each: each.since_ms),
            message=f"task{'s' if len(tasks) > 1 else ''} {', '.join(map(str, tasks))}: {message}",
        )
        for message, tasks in by_message.items()
    )
