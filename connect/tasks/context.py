"""The context a task is started with, from what its process was told"""

from collections.abc import Callable

from tidemill.connect.api import SourceOffset, SourcePartition, TaskContext
from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks.control import TaskControl


def task_context(
    spec: TaskSpec,
    control: TaskControl,
    *,
    offsets: Callable[[SourcePartition], SourceOffset | None] = lambda partition: None,
    stopping: Callable[[], bool] | None = None,
) -> TaskContext:
    """Make the context; only a source has stored offsets."""
    return TaskContext(
        connector=spec.task.connector,
        task=spec.task.task,
        config=spec.config,
        bootstrap_servers=spec.bootstrap_servers,
        client_config=spec.client_config,
        key_converter=spec.key_converter,
        value_converter=spec.value_converter,
        offsets=offsets,
        stopping=stopping or (lambda: control.stopping),
        report=control.report,
        problem=control.problem,
    )
