"""Logs, clients' requests and an image, for sessions without a broker"""

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemill.broker.fetch_sessions import FetchSessions, FetchTurn, Marks
from tidemill.broker.quorum.image import ClusterImage, PartitionImage, apply_batch
from tidemill.broker.quorum.records import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from tidemill.broker.replication.moved import Moved, Stir
from tidemill.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)


def cluster(partitions: int = 4, topic: str = "t") -> ClusterImage:
    """One topic, led by broker 1."""
    return grown(ClusterImage(), topic, partitions)


def grown(image: ClusterImage, topic: str, partitions: int = 1) -> ClusterImage:
    """With one more topic."""
    topic_id = uuid.UUID(int=len(image.topics) + image.offset + 1)
    rows = [
        PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=(1,),
            isr=(1,),
            leader=1,
        )
        for number in range(partitions)
    ]
    return apply_batch(image, (TopicRecord(name=topic, topic_id=topic_id), *rows))


def elected(image: ClusterImage, topic: str, number: int) -> ClusterImage:
    """With another leader epoch of one partition."""
    change = PartitionChangeRecord(topic_id=image.topics[topic].topic_id, partition_id=number, leader=1)
    return apply_batch(image, (change,))


IMAGE = cluster()


def sessions(slots: int = 10, **more: int) -> FetchSessions:
    return FetchSessions(slots, itertools.count(1).__next__, **more)


def request(
    partitions: dict[tuple[str, int], int],
    session_id: int = 0,
    epoch: int = 0,
    forgotten: tuple[tuple[str, int], ...] = (),
    **more: object,
) -> FetchRequest:
    topics = tuple(
        FetchTopic(topic=topic, partitions=(FetchPartition(partition=number, fetch_offset=offset),))
        for (topic, number), offset in partitions.items()
    )
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=tuple(ForgottenTopic(topic=topic, partitions=(number,)) for topic, number in forgotten),
        **more,  # type: ignore[arg-type]
    )


def places(turn: FetchTurn) -> list[tuple[str, int]]:
    return [(wanted.topic, wanted.partition.partition) for wanted in turn.wanted]


FOLLOWER = {"replica_state": ReplicaState(replica_id=2)}


def sources(logs: dict[int, "Log"], numbers: Sequence[int] = (), image: ClusterImage = IMAGE) -> dict[int, Marks]:
    """Where the rows of an answer come from, which are of partitions `numbers`."""
    for number, log in logs.items():
        log.image = image.topics["t"].partitions[number]
    return {place: logs[number] for place, number in enumerate(numbers or logs) if not logs[number].error}


@dataclass(eq=False)
class Log:
    """What a partition has, as the model of a broker sees it; a change of anything stirs who listens, as there."""

    start: int = 0
    end: int = 0
    stable: int = 0
    error: int = 0
    led_elsewhere: bool = False  # which the log itself does not know
    image: PartitionImage | None = None
    beyond: int = 0  # that is not committed
    quiet: dict[Stir, None] = field(default_factory=dict)
    copied: dict[Stir, None] = field(default_factory=dict)

    def __setattr__(self, name: str, value: object) -> None:
        changed = name in self.__dict__ and self.__dict__[name] is not value
        object.__setattr__(self, name, value)
        if not changed or name in ("quiet", "copied"):
            return
        if name in ("end", "beyond"):
            copied, self.copied = self.copied, {}
            for stir in copied:
                self.quiet.pop(stir, None)
                stir(Moved.APPENDED)
        if name in ("end", "stable"):
            quiet, self.quiet = self.quiet, {}
            for stir in quiet:
                stir(Moved.COMMITTED)
        if name in ("start", "image", "error"):
            for stir in self.quiet | self.copied:
                stir(Moved.OTHER)

    def listen(self, stir: Stir, *, of_appends: bool) -> None:
        self.quiet[stir] = None
        if of_appends:
            self.copied[stir] = None

    def ignore(self, stir: Stir) -> None:
        self.quiet.pop(stir, None)
        self.copied.pop(stir, None)

    @property
    def high_watermark(self) -> int:
        return self.end

    @property
    def log_end_offset(self) -> int:
        return self.end + self.beyond

    @property
    def last_stable_offset(self) -> int:
        return self.stable

    @property
    def log_start_offset(self) -> int:
        return self.start

    @property
    def closed(self) -> bool:
        return self.error != 0

    def data(self, number: int, offset: int) -> PartitionData:
        error = 6 if self.led_elsewhere else self.error
        records = b"" if error else b"x" * max(0, self.end - offset)
        marks = (-1, -1, -1) if error else (self.end, self.stable, self.start)
        return PartitionData(
            partition_index=number,
            error_code=error,
            high_watermark=marks[0],
            last_stable_offset=marks[1],
            log_start_offset=marks[2],
            records=records,
        )
