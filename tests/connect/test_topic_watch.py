"""A topic that has become another one is noticed, by its id"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidemill.connect.topic_log import TopicLogError
from tidemill.connect.topic_watch import MISSING, TopicIds, TopicWatch


class Bench:
    """A watch over two topics, of which the worker gives up with one, and what the cluster answers."""

    def __init__(self) -> None:
        self.answer: dict[str, str] = {"config": "1", "offsets": "2"}
        self.now_ms = 1_000
        self.given_up: list[TopicLogError] = []
        topics = {"config": self.given_up.append, "offsets": None}
        self.watch = TopicWatch(self.ask, topics, lambda: self.now_ms)

    async def ask(self, topics: Sequence[str]) -> Mapping[str, str]:
        assert set(topics) == {"config", "offsets"}
        return dict(self.answer)

    @property
    def problem(self) -> str:
        return "" if self.watch.problem is None else self.watch.problem.message


async def test_a_topic_with_another_id_is_given_up_once() -> None:
    bench = Bench()
    await bench.watch.begin()
    await bench.watch.look()
    assert (bench.given_up, bench.problem) == ([], "")
    bench.answer["config"] = "3"
    await bench.watch.look()
    await bench.watch.look()
    (error,) = bench.given_up
    assert "topic 'config' is another one than this worker has read" in str(error)
    assert bench.problem == str(error)


async def test_another_topic_that_is_not_given_up_stays_a_problem() -> None:
    bench = Bench()
    await bench.watch.begin()
    bench.answer["offsets"] = "3"
    await bench.watch.look()
    bench.now_ms += 5_000
    await bench.watch.look()
    assert bench.given_up == [] and "topic 'offsets' is another one" in bench.problem
    assert bench.watch.problem is not None and bench.watch.problem.since_ms == 1_000


async def test_a_topic_that_is_not_there_is_a_problem_until_it_is_back_or_another_one() -> None:
    bench = Bench()
    await bench.watch.begin()
    bench.answer["config"] = MISSING
    await bench.watch.look()
    assert bench.problem == "topic 'config' is not there any more"
    bench.answer["config"] = "1"
    await bench.watch.look()
    assert bench.problem == ""
    bench.answer["config"] = MISSING
    await bench.watch.look()
    bench.answer["config"] = "3"
    await bench.watch.look()
    assert "another one" in bench.problem and len(bench.given_up) == 1


async def test_no_answer_says_nothing() -> None:
    bench = Bench()
    await bench.watch.begin()
    bench.answer.clear()
    await bench.watch.look()
    assert (bench.given_up, bench.problem) == ([], "")


async def test_a_topic_that_is_seen_late_is_known_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.connect.topic_watch.FIRST_S", 0.0)
    bench = Bench()
    bench.answer["config"] = MISSING
    await bench.watch.begin()
    bench.answer["config"] = "1"
    await bench.watch.look()
    assert (bench.given_up, bench.problem) == ([], "")
    bench.answer["config"] = "3"
    await bench.watch.look()
    assert len(bench.given_up) == 1


@pytest.mark.integration
async def test_ids_of_a_cluster(bootstrap: str, unique: Callable[[str], str]) -> None:
    name, nowhere = unique("watched"), unique("nowhere")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    ids = TopicIds({"bootstrap.servers": bootstrap})
    try:
        found = []
        for _ in range(2):
            admin.create_topics([NewTopic(name, num_partitions=1)])[name].result(20)
            async with asyncio.timeout(20):
                while (await ids([name])).get(name, MISSING) == MISSING:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            answer = await ids([name, nowhere])
            assert answer[nowhere] == MISSING
            found.append(answer[name])
            admin.delete_topics([name])[name].result(20)
        assert len(set(found)) == 2
    finally:
        ids.close()
    assert await ids([name]) == {}
