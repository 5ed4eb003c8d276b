"""Without quotas nobody waits; their names are those of Kafka's settings"""

from tidemill.broker.dispatch import Peer
from tidemill.broker.quotas import UNLIMITED, Quota


def test_nobody_waits() -> None:
    who = Peer(client_host="10.0.0.9", listener="PLAINTEXT", connection_id="c1")
    assert [UNLIMITED.charge(quota, 1e12, who, "c") for quota in Quota] == [0] * 4


def test_the_names_are_kafkas() -> None:
    names = {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
    assert {quota.value for quota in Quota} == names
