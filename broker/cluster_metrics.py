"""A cluster's figures under the names that people who run Kafka know

By the rule of `tidemill.broker.metrics`. What Kafka tells of its quorum as text, as the state of a node, is a label
here.
"""

from collections.abc import Iterator, Mapping

from tidemill.broker.cluster_figures import Cluster, Replicas
from tidemill.core.runtime.exposition import Family, Sample, labels

_CONTROLLER, _MANAGER = "kafka_controller_kafkacontroller_", "kafka_server_replicamanager_"
_ELECTIONS, _RAFT = "kafka_controller_controllerstats_", "kafka_server_raft_metrics_"


def of_replicas(found: Replicas) -> Iterator[Family]:
    """What a walk over all partitions finds."""
    yield _gauge(f"{_MANAGER}partitioncount", "partitions that live on this node", found.here)
    yield _gauge(f"{_MANAGER}leadercount", "partitions that this node leads", found.led)
    yield _gauge(
        f"{_MANAGER}underreplicatedpartitions", "partitions led here that lack a replica", found.under_replicated
    )
    yield _gauge(f"{_MANAGER}underminisrpartitioncount", "of them, those that refuse acks=all", found.under_min_isr)
    yield _gauge(f"{_MANAGER}atminisrpartitioncount", "partitions led here that can spare nobody", found.at_min_isr)
    yield _gauge(f"{_MANAGER}reassigningpartitions", "partitions led here that are moved", found.reassigning)
    yield _gauge(f"{_MANAGER}offlinereplicacount", "partitions of this node without a log", found.offline)
    yield _gauge(f"{_CONTROLLER}offlinepartitionscount", "partitions that nobody can use", found.unusable)
    name = f"{_CONTROLLER}preferredreplicaimbalancecount"
    yield _gauge(name, "partitions led by another than the first of their replicas", found.not_preferred)
    yield _gauge(f"{_CONTROLLER}globaltopiccount", "topics of the cluster", found.topics)
    yield _gauge(f"{_CONTROLLER}globalpartitioncount", "partitions of the cluster", found.partitions)
    lag: list[Sample] = [(labels(clientId="Replica"), found.lag_max)]
    yield Family("kafka_server_replicafetchermanager_maxlag", "gauge", "records that a copy here is behind", lag)
    name = "tidemill_broker_follower_lag"
    yield Family(name, "gauge", "records that a follower lacks at most", _by_node(found.followers))


def of_cluster(found: Cluster, bytes_copied: int) -> Iterator[Family]:
    """What a node is among the others, and who they are."""
    yield _gauge(f"{_CONTROLLER}activecontrollercount", "1: this node decides", int(found.active_controller))
    yield _gauge(f"{_CONTROLLER}activebrokercount", "brokers that may lead", found.brokers_active)
    yield _gauge(f"{_CONTROLLER}fencedbrokercount", "brokers that are registered and away", found.brokers_fenced)
    yield _counter("tidemill_controller_leader_elections_total", "partitions that got another leader", found.elections)
    name = f"{_ELECTIONS}electionfromeligibleleaderreplicas_total"
    yield _counter(name, "of them, those out of the ISR", found.elections_from_eligible)
    yield _counter(
        f"{_ELECTIONS}uncleanleaderelections_total", "of them, those that lose records", found.elections_unclean
    )
    yield _counter(f"{_MANAGER}isrshrinks_total", "ISRs led here that lost somebody", found.isr_shrinks)
    yield _counter(f"{_MANAGER}isrexpands_total", "ISRs led here that got somebody", found.isr_expands)
    topics = "kafka_server_brokertopicmetrics_replicationbytes"
    yield _counter(f"{topics}in_total", "bytes copied from leaders, as stored", bytes_copied)
    yield _counter(f"{topics}out_total", "bytes sent to followers, as stored", found.bytes_to_followers)
    yield _counter("tidemill_broker_forwarded_requests_total", "requests passed to the controller", found.forwarded)
    state: list[Sample] = [(labels(state=found.state), 1)]
    yield Family(f"{_RAFT}current_state", "gauge", "what this node is in the quorum", state)
    yield _gauge(f"{_RAFT}current_leader", "node that leads the quorum, -1 if none", found.leader_id)
    yield _gauge(f"{_RAFT}current_epoch", "epoch of the quorum", found.epoch)
    yield _gauge(f"{_RAFT}high_watermark", "end of the metadata that is committed", found.high_watermark)
    yield _gauge(f"{_RAFT}log_end_offset", "end of the metadata on this node", found.log_end)
    yield _gauge(f"{_RAFT}number_of_voters", "controllers that agree", found.voters)
    yield _gauge(f"{_RAFT}number_of_observers", "nodes that follow them", found.observers)
    name = "tidemill_controller_quorum_lag"
    yield Family(name, "gauge", "metadata records that a node lacks", _by_node(found.lags))
    name = "kafka_server_broker_metadata_metrics_last_applied_record_offset"
    yield _gauge(name, "of the last metadata record that this node goes by", found.applied - 1)


def _by_node(numbers: Mapping[int, int]) -> list[Sample]:
    return [(labels(node=str(node)), number) for node, number in sorted(numbers.items())]


def _gauge(name: str, doc: str, value: float) -> Family:
    return Family(name, "gauge", doc, [("", value)])


def _counter(name: str, doc: str, value: float) -> Family:
    return Family(name, "counter", doc, [("", value)])
