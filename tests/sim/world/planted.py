"""Faults that a world has to find: each takes a promise out of the broker

Planted by replacing one method, so a broker that has moved on makes the plant itself fail, not the hunt.
"""

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.broker.admission import Admission
from tidemill.broker.dispatch import Dispatcher, Exchange
from tidemill.broker.groups import commits, machine
from tidemill.broker.groups.states import GroupState, Move
from tidemill.broker.groups.table import GroupTable
from tidemill.broker.input_buffer import InputBuffer
from tidemill.broker.log import flusher
from tidemill.broker.log.partition import PartitionLog
from tidemill.broker.log.producers import KeptBatch, ProducerStates
from tidemill.broker.quorum import controller
from tidemill.broker.quorum.store import MetadataStore
from tidemill.broker.replication.replica import Replica
from tidemill.core.errors import InvalidProducerEpoch, KafkaError
from tidemill.core.records.batch import BatchHeader

Plant = Callable[[pytest.MonkeyPatch], None]


def ack_before_durable(patch: pytest.MonkeyPatch) -> None:
    """Producers are told as soon as a record is written."""
    patch.setattr(Replica, "pending", lambda _replica, _last_offset, _acks=-1: None)


def whole_sync_of_nothing(patch: pytest.MonkeyPatch) -> None:
    """Where one sync of the whole file system is to be had, it is not done."""
    real = flusher.Disk.__init__

    def begin(
        disk: flusher.Disk,
        monotonic: Callable[[], float],
        sync_everything: flusher.SyncEverything | None,
        sync_files: flusher.SyncFiles,
    ) -> None:
        real(disk, monotonic, None if sync_everything is None else lambda _one: None, sync_files)

    patch.setattr(flusher.Disk, "__init__", begin)


def high_watermark_beyond_durable(patch: pytest.MonkeyPatch) -> None:
    """Consumers see what is not on the disk."""
    real = PartitionLog.begin_flush

    def begin_flush(log: PartitionLog) -> Any:
        work = real(log)
        log.end_flush()
        return work

    patch.setattr(PartitionLog, "begin_flush", begin_flush)


def lost_group_append(patch: pytest.MonkeyPatch) -> None:
    """Now and then what a coordinator says goes nowhere."""
    real, numbers = PartitionLog.append_own, itertools.count(1)

    def append_own(log: PartitionLog, data: Any, **more: Any) -> Any:
        if next(numbers) % 5 == 0:
            return SimpleNamespace(last_offset=log.log_start_offset - 1)
        return real(log, data, **more)

    patch.setattr(PartitionLog, "append_own", append_own)


def torn_metadata_batch(patch: pytest.MonkeyPatch) -> None:
    """A decision of several records is several batches, and a crash leaves the first of them."""
    real = MetadataStore.append

    def append(store: MetadataStore, records: Any, now_ms: int) -> int:
        end = store.offset_end
        for record in records:
            end = real(store, (record,), now_ms)
        return end

    patch.setattr(MetadataStore, "append", append)


def decision_before_durable(patch: pytest.MonkeyPatch) -> None:
    """Administrators are told as soon as a decision is written."""
    patch.setattr(MetadataStore, "sync", lambda _store: None)


def offsets_outlive_their_topic(patch: pytest.MonkeyPatch) -> None:
    """What was committed for a topic counts for the next one of its name."""
    patch.setattr(commits.rules, "foreign", lambda *_: ())
    patch.setattr(machine.rules, "present", lambda offsets, _topics: dict(offsets))


def no_new_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    """A start after a crash goes on in the leader epoch of before."""

    def none(*_: Any) -> Iterator[Any]:
        return iter(())

    patch.setattr(controller, "new_leaderships", none)


def generation_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """A group that nobody is in is forgotten, with its generation."""

    def drop(table: GroupTable, group: Any, now: Any) -> None:
        if group.state is GroupState.EMPTY and not group.offsets and table.groups.get(group.group_id) is group:
            group.move(Move.REMOVE, now.wall_ms)
            del table.groups[group.group_id]

    patch.setattr(GroupTable, "drop_if_nothing_left", drop)


def the_muted_are_heard(patch: pytest.MonkeyPatch) -> None:
    """Whoever is answered at once and told to wait is served on all the same."""
    real = Dispatcher.start

    def start(dispatcher: Dispatcher, *arguments: Any) -> Exchange:
        exchange = real(dispatcher, *arguments)
        if exchange.chunks is not None:
            exchange.throttle_ms = 0
        return exchange

    patch.setattr(Dispatcher, "start", start)


def memory_leaks(patch: pytest.MonkeyPatch) -> None:
    """What a large request had taken whose client went away in the middle of it is never given back."""
    patch.setattr(InputBuffer, "close", lambda _incoming: 0)


def a_bug_is_answered(patch: pytest.MonkeyPatch) -> None:
    """Now and then a batch meets a bug, and its producer is told of an unexpected failure."""
    real, numbers = Admission.admit, itertools.count(1)

    def admit(admission: Admission, *arguments: Any) -> Any:
        if next(numbers) % 7 == 0:
            raise KeyError("a bug")
        return real(admission, *arguments)

    patch.setattr(Admission, "admit", admit)


def gaps_are_stored(patch: pytest.MonkeyPatch) -> None:
    """A batch of an idempotent producer is stored whether the ones before it are or not."""
    real = ProducerStates.check

    def check(producers: ProducerStates, batch: BatchHeader) -> KeptBatch | None:
        try:
            return real(producers, batch)
        except InvalidProducerEpoch:
            raise
        except KafkaError:
            return None

    patch.setattr(ProducerStates, "check", check)


PLANTED: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        ack_before_durable,
        whole_sync_of_nothing,
        high_watermark_beyond_durable,
        lost_group_append,
        torn_metadata_batch,
        decision_before_durable,
        offsets_outlive_their_topic,
        no_new_leader_epoch,
        generation_begins_anew,
        the_muted_are_heard,
        memory_leaks,
        a_bug_is_answered,
    )
}
