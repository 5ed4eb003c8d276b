"""The words worker and host share"""

from tidemill.connect.task_spec import TaskId


def test_a_task_is_called_as_kafka_connect_calls_it() -> None:
    assert str(TaskId("my-source", 3)) == "my-source-3"
