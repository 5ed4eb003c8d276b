"""Between the values of `task_spec` and the messages that carry them"""

from tidemill.connect.api import ConverterSpec, PluginKind
from tidemill.connect.problem import Problem
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.task_spec import InitialState, TaskId, TaskSpec

PROTOCOL_VERSION = 2
"""Grows when an old task process could no longer work under a new worker, or the other way round."""


def spec_to_message(spec: TaskSpec) -> pb.TaskSpec:
    """Write a task's specification."""
    return pb.TaskSpec(
        connector=spec.task.connector,
        task=spec.task.task,
        incarnation=spec.incarnation,
        plugin=spec.plugin,
        kind=spec.kind.value,
        config=dict(spec.config),
        bootstrap_servers=spec.bootstrap_servers,
        key_converter=_converter_to_message(spec.key_converter),
        value_converter=_converter_to_message(spec.value_converter),
        offsets_topic=spec.offsets_topic,
        worker_id=spec.worker_id,
        client_config=dict(spec.client_config),
        producer_config=dict(spec.producer_config),
        consumer_config=dict(spec.consumer_config),
        offset_flush_interval_ms=spec.offset_flush_interval_ms,
        offset_flush_timeout_ms=spec.offset_flush_timeout_ms,
        environment=spec.environment,
        initial_state=spec.initial_state.value,
    )


def spec_from_message(message: pb.TaskSpec) -> TaskSpec:
    """Read a task's specification."""
    return TaskSpec(
        task=TaskId(message.connector, message.task),
        incarnation=message.incarnation,
        plugin=message.plugin,
        kind=PluginKind(message.kind),
        config=dict(message.config),
        bootstrap_servers=message.bootstrap_servers,
        key_converter=_converter_from_message(message.key_converter),
        value_converter=_converter_from_message(message.value_converter),
        offsets_topic=message.offsets_topic,
        worker_id=message.worker_id,
        client_config=dict(message.client_config),
        producer_config=dict(message.producer_config),
        consumer_config=dict(message.consumer_config),
        offset_flush_interval_ms=message.offset_flush_interval_ms,
        offset_flush_timeout_ms=message.offset_flush_timeout_ms,
        environment=message.environment,
        initial_state=InitialState(message.initial_state),
    )


def _converter_to_message(spec: ConverterSpec) -> pb.Converter:
    return pb.Converter(kind=spec.kind, options=dict(spec.options))


def _converter_from_message(message: pb.Converter) -> ConverterSpec:
    return ConverterSpec(kind=message.kind, options=dict(message.options))


def report_to_message(facts_json: bytes, problem: Problem | None) -> pb.Report:
    """Write a report."""
    if problem is None:
        return pb.Report(facts_json=facts_json)
    trouble = pb.Trouble(
        message=problem.message,
        since_ms=problem.since_ms,
        attempts=problem.attempts,
        next_try_ms=problem.next_try_ms,
    )
    return pb.Report(facts_json=facts_json, trouble=trouble)


def problem_from_message(message: pb.Report) -> Problem | None:
    """Read what a report says of the task's problem."""
    if not message.HasField("trouble"):
        return None
    trouble = message.trouble
    return Problem(
        message=trouble.message,
        since_ms=trouble.since_ms,
        attempts=trouble.attempts,
        next_try_ms=trouble.next_try_ms if trouble.HasField("next_try_ms") else None,
    )
