"""The quorum of one"""

import errno
import random
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sim.disk import SimulatedDisk
from tidemill.broker.quorum.disk_thread import DiskThread
from tidemill.broker.quorum.member import Alone
from tidemill.broker.quorum.records import MetadataRecord, ProducerIdsRecord
from tidemill.broker.quorum.store import MetadataStore, MetadataStoreError
from tidemill.core.runtime.clock import ManualClock

RECORD = ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=1000)
DIRECTORY = uuid.UUID(int=7)


async def test_it_leads_and_what_it_commits_survives_a_power_cut() -> None:
    disk = SimulatedDisk()
    store = MetadataStore(disk.root)
    store.load(lambda _records: None)
    with ThreadPoolExecutor(1) as executor:
        alone = Alone(store, clock=ManualClock(), node_id=1, thread=DiskThread(executor), directory_id=DIRECTORY)
        assert (alone.leads, alone.leader_id) == (True, 1)
        await alone.commit([RECORD])
    (voter,) = alone.state().voters
    assert (voter.node_id, voter.log_end_offset, voter.directory_id) == (1, 1, DIRECTORY)
    assert alone.state().high_watermark == 1
    disk.crash(random.Random(1))
    found: list[MetadataRecord] = []
    MetadataStore(disk.root).load(found.extend)
    assert found == [RECORD]


async def test_a_disk_that_refuses_is_told() -> None:
    disk = SimulatedDisk()
    store = MetadataStore(disk.root)
    store.load(lambda _records: None)
    disk.fail_sync = OSError(errno.EIO, "Input/output error")
    alone = Alone(store, clock=ManualClock(), node_id=1, thread=DiskThread(None), directory_id=DIRECTORY)
    with pytest.raises(MetadataStoreError):
        await alone.commit([RECORD])
