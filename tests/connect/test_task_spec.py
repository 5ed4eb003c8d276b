"""The words worker and host share"""

from tidemill.connect.task_spec import EXIT_LOST_WORKER, TaskExited, TaskId


def test_a_task_is_called_as_kafka_connect_calls_it() -> None:
    assert str(TaskId("my-source", 3)) == "my-source-3"


def test_who_has_ended_with_others_was_killed_whatever_the_process_says() -> None:
    def killed(returncode: int, *, with_others: bool = False) -> bool:
        exited = TaskExited(
            task=TaskId("c", 0), incarnation=1, returncode=returncode, reason="", with_others=with_others
        )
        return exited.killed

    assert [killed(each) for each in (-9, EXIT_LOST_WORKER, 3, 0)] == [True, True, False, False]
    assert killed(3, with_others=True) and killed(0, with_others=True)
