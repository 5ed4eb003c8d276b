"""What a task is told"""

from collections.abc import Callable

from tidemill.connect.task_spec import TaskSpec
from tidemill.connect.tasks.context import task_context
from tidemill.connect.tasks.control import TaskControl


def test_everything_of_the_specification_arrives(spec: Callable[..., TaskSpec]) -> None:
    given = spec("p", {"a": "b"}, name="c", task=3, client_config={"x": "y"})
    control = TaskControl(lambda news: None)
    context = task_context(given, control, offsets=lambda partition: {"of": partition["p"]})
    assert (context.connector, context.task, context.config) == ("c", 3, {"a": "b"})
    assert (context.bootstrap_servers, context.client_config) == (given.bootstrap_servers, {"x": "y"})
    assert (context.key_converter, context.value_converter) == (given.key_converter, given.value_converter)
    assert context.offsets({"p": 1}) == {"of": 1}
    assert not context.stopping()
    control.request_stop(0)
    assert context.stopping()
    context.report({"lag": 1})
    assert control.facts == {"lag": 1}
    context.problem("slot", "the slot is in use", retry_s=1)
    problem = control.current_problem()
    assert problem is not None and problem.message == "the slot is in use"


def test_only_sources_have_offsets(spec: Callable[..., TaskSpec]) -> None:
    assert task_context(spec("p"), TaskControl(lambda news: None)).offsets({}) is None
