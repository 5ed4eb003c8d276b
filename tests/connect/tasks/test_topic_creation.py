"""Which topics a source creates, and how"""

from tidemill.connect.tasks.topic_creation import TopicCreation, TopicRecipe

DEFAULT = {"topic.creation.default.partitions": "2", "topic.creation.default.replication.factor": "1"}


def test_without_the_default_group_nothing_is_created() -> None:
    assert not TopicCreation({}).enabled
    assert not TopicCreation({"topic.creation.default.partitions": "1"}).enabled


def test_the_default_group_takes_what_no_other_takes() -> None:
    creation = TopicCreation(DEFAULT | {"topic.creation.default.cleanup.policy": "compact"})
    assert creation.recipe("t") == TopicRecipe(partitions=2, replication_factor=1, config={"cleanup.policy": "compact"})


def test_the_first_group_that_matches_wins() -> None:
    creation = TopicCreation(
        DEFAULT
        | {
            "topic.creation.default.retention.ms": "1",
            "topic.creation.groups": "big, logs",
            "topic.creation.big.include": "orders, big\\..*",
            "topic.creation.big.exclude": ".*\\.small",
            "topic.creation.big.partitions": "12",
            "topic.creation.logs.include": ".*log.*",
            "topic.creation.logs.cleanup.policy": "delete",
        }
    )
    assert creation.recipe("big.log") == TopicRecipe(partitions=12, replication_factor=1, config={})
    assert creation.recipe("big.small").partitions == 2
    assert creation.recipe("orders").partitions == 12
    assert creation.recipe("orders2").partitions == 2
    assert creation.recipe("a-log") == TopicRecipe(
        partitions=2, replication_factor=1, config={"cleanup.policy": "delete"}
    )
