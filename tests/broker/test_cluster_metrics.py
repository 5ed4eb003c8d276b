"""A cluster's figures under their names; that the page lists them all is tested with the whole scrape."""

from prometheus_client.parser import text_string_to_metric_families

from tidemill.broker.cluster_figures import Cluster, Replicas
from tidemill.broker.cluster_metrics import of_cluster, of_replicas
from tidemill.core.runtime.exposition import write


def samples(text: bytes) -> dict[tuple[str, str], float]:
    """By name and the only label's value, empty where there is none."""
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_each_number_has_its_own_name() -> None:
    fields = ("here", "led", "under_replicated", "under_min_isr", "at_min_isr", "reassigning", "offline", "unusable")
    fields += ("not_preferred", "topics", "partitions", "lag_max")
    found = Replicas(**{name: 10 + number for number, name in enumerate(fields)}, followers={2: 1, 3: 2})
    told = samples(write(of_replicas(found)))
    assert sorted(told.values()) == [1, 2, *range(10, 10 + len(fields))]
    assert told["kafka_server_replicamanager_underminisrpartitioncount", ""] == found.under_min_isr
    assert told["kafka_server_replicamanager_atminisrpartitioncount", ""] == found.at_min_isr
    assert told["kafka_controller_kafkacontroller_offlinepartitionscount", ""] == found.unusable
    assert told["kafka_server_replicafetchermanager_maxlag", "Replica"] == found.lag_max
    assert told["tidemill_broker_follower_lag", "3"] == 2


def test_the_quorum_and_the_brokers() -> None:
    found = Cluster(active_controller=True, state="leader", leader_id=2, epoch=5, applied=8, lags={1: 0, 2: 0, 3: 40})
    told = samples(write(of_cluster(found, 77)))
    assert told["kafka_controller_kafkacontroller_activecontrollercount", ""] == 1
    assert told["kafka_server_raft_metrics_current_state", "leader"] == 1
    assert told["kafka_server_raft_metrics_current_leader", ""] == 2
    assert told["kafka_server_broker_metadata_metrics_last_applied_record_offset", ""] == 7
    assert told["tidemill_controller_quorum_lag", "3"] == 40
    assert told["kafka_server_brokertopicmetrics_replicationbytesin_total", ""] == 77
