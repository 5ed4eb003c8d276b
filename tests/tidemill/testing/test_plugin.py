"""The pytest plugin: its fixtures hand out real parts."""

from typing import TYPE_CHECKING

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from tidemill.services import Service
    from tidemill.testing.postgres_server import PostgresServer

pytestmark = pytest.mark.integration


def test_the_broker_fixture_is_a_running_cluster(tidemill_broker: "Service") -> None:
    metadata = AdminClient({"bootstrap.servers": tidemill_broker.facts["address"]}).list_topics(timeout=10)
    assert len(metadata.brokers) == 1


@pytest.mark.postgres
def test_the_postgres_fixture_can_be_captured(tidemill_postgres: "PostgresServer") -> None:
    with psycopg.connect(tidemill_postgres.dsn) as connection:
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
