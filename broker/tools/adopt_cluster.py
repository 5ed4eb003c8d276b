"""A node's metadata log of a Kafka cluster made ours, record by record

Nodes of a cluster are taken over one by one, each by its own copy of the log, and these copies do not end at the same
place: what a majority holds is decided, what is behind that may be cut off yet. So the log is not summed up: a batch
of Kafka's becomes one of ours at the same offsets and of the same epoch, a snapshot one of the same end, and who voted
for whom is kept. Whatever Raft says of Kafka's copies holds for ours, and our nodes elect and agree from there.

A record that we keep nothing of becomes one that changes nothing, for its offset has to be taken. Kafka's own control
batches (leaders, voters) are ours as they are. Brokers are fenced until ours register; eligible leader replicas are not
believed, so whoever is in an ISR must be enough.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemill.broker.config import BROKER_CONFIG
from tidemill.broker.quorum import election_state
from tidemill.broker.quorum.batches import sound_batches
from tidemill.broker.quorum.control import KRAFT_VOTERS, Voters, control_records, kind_of
from tidemill.broker.quorum.election_state import ELECTION_STATE
from tidemill.broker.quorum.image import RESOURCE_BROKER, RESOURCE_TOPIC, ClusterImage, Draft, ImageError
from tidemill.broker.quorum.raft.election import NOBODY, ElectionState
from tidemill.broker.quorum.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataFormatError,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    encode_record,
)
from tidemill.broker.quorum.segment import segment_file
from tidemill.broker.quorum.snapshot import SnapshotId, encode, standing_of
from tidemill.broker.tools.kafka_metadata import (
    ABORT,
    BEGIN,
    SNAPSHOT_SUFFIX,
    KafkaMetadataError,
    KafkaPartition,
    KafkaPartitionChange,
    KafkaRecord,
    MetadataTransaction,
    NodeSeen,
    decode,
)
from tidemill.broker.tools.kafka_settings import why_no_setting
from tidemill.broker.topic_config import TOPIC_CONFIG
from tidemill.core.errors import KafkaError
from tidemill.core.ids import decode_id
from tidemill.core.records.batch import BatchView
from tidemill.core.records.builder import build_batch
from tidemill.core.records.record import NewRecord, decode_records
from tidemill.core.types import ZERO_UUID

NOTHING: Final = FeatureLevelRecord(name="tidemill.nothing", feature_level=0)
"""Takes an offset and changes nothing: a feature that nobody has is at level 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLog:
    """The files of our metadata log, by name, and what they lead to."""

    files: Mapping[str, bytes]
    image: ClusterImage
    offset_end: int
    epoch: int
    left_out: Mapping[str, int]


def convert(files: Mapping[str, bytes], quorum_state: bytes, now_ms: int) -> MemberLog:
    """Ours from the files that `files_needed` names, in that order; raises KafkaMetadataError."""
    taken = _Taken(now_ms)
    for name, data in files.items():
        if name.endswith(SNAPSHOT_SUFFIX):
            taken.snapshot(name, data)
        else:
            taken.segment(name, data)
    taken.end()
    election = _election(quorum_state, taken.epoch)
    return MemberLog(
        files={**taken.files(), ELECTION_STATE: election_state.encode(election)},
        image=taken.image(),
        offset_end=taken.offset,
        epoch=taken.epoch,
        left_out=dict(taken.left_out),
    )


def voters_in(files: Mapping[str, bytes]) -> frozenset[int]:
    """Who votes by the last set in the log or its snapshot; empty where there is none. Raises KafkaMetadataError."""
    found: frozenset[int] = frozenset()
    try:
        for data in files.values():
            for view, _ in sound_batches(data):
                if view.is_control and any(kind_of(each.key or b"") == KRAFT_VOTERS for each in decode_records(view)):
                    sets = [each.voters for each in control_records(view) if isinstance(each, Voters)]
                    found = frozenset(voter.node_id for voter in sets[-1])
    except (MetadataFormatError, KafkaError) as error:
        raise KafkaMetadataError(f"the voters in the metadata log cannot be read: {error}") from None
    return found


class _Taken:
    """Mutable: what was read so far."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._draft = Draft(ClusterImage())
        self._snapshot: tuple[SnapshotId, bytes] | None = None
        self._log = bytearray()
        self._in_transaction = False
        self.start = self.offset = self.epoch = 0
        self.left_out: Counter[str] = Counter()

    def snapshot(self, name: str, data: bytes) -> None:
        which = SnapshotId.parse(name)
        if which is None:
            raise KafkaMetadataError(f"{name} is no name of a snapshot")
        records = [each for view, _ in sound_batches(data) if not view.is_control for each in self._records(view, name)]
        batches = encode(records, epoch=which.epoch, now_ms=self._now_ms, standing=standing_of(data))
        self._snapshot = which, b"".join(batches)
        self._apply(records)
        self.start = self.offset = which.offset_end
        self.epoch = which.epoch

    def segment(self, name: str, data: bytes) -> None:
        begin = 0
        for view, end in sound_batches(data):
            raw, begin = data[begin:end], end
            if view.next_offset <= self.start:
                continue  # the snapshot has it
            if view.base_offset != self.offset:
                raise KafkaMetadataError(f"{name}: offset {view.base_offset} follows {self.offset}")
            if view.is_control:
                self._log += raw
            else:
                self._log += self._batch(view, name)
            self.offset, self.epoch = view.next_offset, view.leader_epoch

    def _batch(self, view: BatchView, name: str) -> bytes:
        records = self._records(view, name)
        if len(records) != view.next_offset - view.base_offset:
            raise KafkaMetadataError(f"{name}: offsets are missing in the batch at {view.base_offset}")
        self._apply(records)
        values = [NewRecord(view.max_timestamp, None, encode_record(each)) for each in records]
        return build_batch(values, base_offset=view.base_offset, leader_epoch=view.leader_epoch)

    def _records(self, view: BatchView, name: str) -> list[MetadataRecord]:
        try:
            return [self._ours(decode(bytes(each.value or b""))) for each in decode_records(view)]
        except (MetadataFormatError, KafkaError) as error:
            raise KafkaMetadataError(f"{name}: {error}; the folder stays Kafka's") from None

    def _apply(self, records: Sequence[MetadataRecord]) -> None:
        try:
            self._draft.apply_all(records)
        except ImageError as error:
            raise KafkaMetadataError(f"the metadata log contradicts itself: {error}") from None

    def _ours(self, record: KafkaRecord | None) -> MetadataRecord:
        match record:
            case TopicRecord() | RemoveTopicRecord() | ProducerIdsRecord():
                return record
            case ConfigRecord():
                return record if self._is_setting(record) else NOTHING
            case KafkaPartition():
                return _partition(record)
            case KafkaPartitionChange():
                return _change(record)
            case NodeSeen(role="broker"):
                return _broker(record)
            case MetadataTransaction():
                self._in_transaction = record.kind == BEGIN
                if record.kind == ABORT:
                    raise MetadataFormatError("a transaction of metadata was given up in the middle")
        return NOTHING

    def _is_setting(self, record: ConfigRecord) -> bool:
        table = {RESOURCE_TOPIC: TOPIC_CONFIG, RESOURCE_BROKER: BROKER_CONFIG}.get(record.resource_type)
        if table is None:
            return False
        whose = record.resource_name
        problem = None if record.value is None else why_no_setting(table, record.name, record.value, of=whose)
        if problem is not None:
            self.left_out[f"{record.name} of {whose or 'all brokers'}: {problem}"] += 1
        return problem is None

    def end(self) -> None:
        """Nothing more comes."""
        if self._in_transaction:
            raise KafkaMetadataError("the metadata log ends within a transaction: start Kafka once more and stop it")

    def image(self) -> ClusterImage:
        """What all of it leads to."""
        return self._draft.freeze(self.offset)

    def files(self) -> dict[str, bytes]:
        """By name."""
        found = {segment_file(self.start): bytes(self._log)}
        if self._snapshot is not None:
            found[self._snapshot[0].name] = self._snapshot[1]
        return found


def _partition(record: KafkaPartition) -> PartitionRecord:
    return PartitionRecord(
        partition_id=record.partition_id,
        topic_id=record.topic_id,
        replicas=record.replicas,
        isr=record.isr,
        removing_replicas=record.removing,
        adding_replicas=record.adding,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        leader_recovery_state=record.recovery_state,
    )


def _change(record: KafkaPartitionChange) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=record.partition_id,
        topic_id=record.topic_id,
        isr=record.isr,
        leader=record.leader,
        replicas=record.replicas,
        removing_replicas=record.removing,
        adding_replicas=record.adding,
        leader_recovery_state=record.recovery_state,
    )


def _broker(record: NodeSeen) -> MetadataRecord:
    if record.gone:
        return UnregisterBrokerRecord(broker_id=record.node_id, broker_epoch=-1)
    return RegisterBrokerRecord(
        broker_id=record.node_id,
        incarnation_id=ZERO_UUID,
        broker_epoch=record.epoch,
        end_points=(),
        fenced=True,
    )


def _election(quorum_state: bytes, log_epoch: int) -> ElectionState:
    try:
        state = json.loads(quorum_state)
        voted, directory = int(state.get("votedId", NOBODY)), state.get("votedDirectoryId")
        return ElectionState(
            epoch=max(int(state["leaderEpoch"]), log_epoch),
            leader_id=int(state["leaderId"]),
            voted_id=voted,
            voted_directory_id=decode_id(directory) if directory and voted != NOBODY else ZERO_UUID,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KafkaMetadataError("quorum-state cannot be read: restore the file") from None
