"""The events of tasks, in order for one reader"""

from tidemill.connect.remote.event_feed import EventFeed
from tidemill.connect.task_spec import TaskId, TaskPaused, TaskReport, TaskStarted

ONE, OTHER = TaskId("c", 0), TaskId("c", 1)


def report(task: TaskId, number: int) -> TaskReport:
    return TaskReport(task=task, incarnation=1, facts={"number": number})


async def test_of_the_reports_of_a_task_only_the_newest_waits() -> None:
    feed = EventFeed()
    started, paused = TaskStarted(task=ONE, incarnation=1, pid=7), TaskPaused(task=ONE, incarnation=1)
    for event in (started, report(ONE, 1), report(OTHER, 1), paused, report(ONE, 2)):
        feed.put(event)
    feed.close()
    assert [event async for event in feed.read()] == [started, report(ONE, 2), report(OTHER, 1), paused]


async def test_what_was_read_is_reported_anew() -> None:
    feed = EventFeed()
    reader = feed.read()
    for number in (1, 2):
        feed.put(report(ONE, number))
        assert await anext(reader) == report(ONE, number)
