"""The sets of operations are the numbers that Apache Kafka 4.3 answers without an authorizer"""

from tidemill.broker.operations import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS


def test_the_sets_are_kafkas() -> None:
    assert (TOPIC_OPERATIONS, GROUP_OPERATIONS, CLUSTER_OPERATIONS) == (3576, 3400, 8096)
