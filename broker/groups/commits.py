"""Requests about what a group has committed

A commit has to come from a member of the current generation, or from somebody alone about a group without members;
it is a sign of life. Deletions and expiry leave tombstones, so that the log says what the machine knows. A request is
answered once its records are written; if they cannot be, it did not happen.

When a topic goes, its offsets mean nothing from that moment on (`tidemill.broker.groups.topics`). Their tombstones only
clean up: what could not be written then is written when offsets are looked over for expiry, or at the next start.

Not here: which offsets of one group are accepted, deleted or due (`tidemill.broker.groups.offsets`).
"""

from tidemill.broker.coordination.contract import ImageChanged, Instant, Replayed
from tidemill.broker.groups import offsets as rules
from tidemill.broker.groups.events import (
    CommitOffsets,
    CommitResult,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsResult,
    ErrorResult,
    ExpireOffsets,
    Response,
)
from tidemill.broker.groups.identity import speaker
from tidemill.broker.groups.records import storable
from tidemill.broker.groups.rounds import Rounds
from tidemill.broker.groups.states import GroupState
from tidemill.broker.groups.table import Answer, GroupTable
from tidemill.broker.groups.topics import Topics
from tidemill.core.error_code import ErrorCode
from tidemill.core.types import ZERO_UUID


class Commits:
    """The part of the machine that keeps and drops offsets."""

    def __init__(self, table: GroupTable, rounds: Rounds) -> None:
        self._table = table
        self._rounds = rounds

    def commit(self, event: CommitOffsets, now: Instant) -> None:
        """Keep offsets that somebody may commit."""
        error = self._commit_problem(event, now)
        bytes_max = self._table.limits.offset_metadata_bytes_max
        errors, records = rules.decide_commit(event, error, self._table.topics, bytes_max, now)
        if not records:
            self._table.reply(event.request_id, CommitResult(errors=errors))
            return
        then = Answer(
            group_id=event.group_id,
            request_id=event.request_id,
            response=CommitResult(errors=errors),
            failed=CommitResult(errors=errors),
        )
        self._table.append(event.group_id, records, then)

    def _commit_problem(self, event: CommitOffsets, now: Instant) -> ErrorCode:
        if not storable(event.group_id) or event.group_id == "":
            return ErrorCode.INVALID_GROUP_ID
        alone = event.generation_id < 0 and event.member_id == "" and event.group_instance_id is None
        group = self._table.groups.get(event.group_id)
        if group is None:
            return ErrorCode.NONE if alone else ErrorCode.ILLEGAL_GENERATION
        if alone and group.is_empty:
            return ErrorCode.NONE
        classic, member, error = speaker(self._table.groups, event)
        if error is not ErrorCode.NONE or classic is None or member is None:
            return error
        if classic.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._rounds.alive(classic, member, now)
        return ErrorCode.NONE

    def delete_group(self, event: DeleteGroup) -> None:
        """Drop all that is known of a group without members."""
        group = self._table.groups.get(event.group_id)
        if group is None:
            self._table.reply(event.request_id, ErrorResult(error=ErrorCode.GROUP_ID_NOT_FOUND))
            return
        if not group.is_empty:
            self._table.reply(event.request_id, ErrorResult(error=ErrorCode.NON_EMPTY_GROUP))
            return
        done = ErrorResult(error=ErrorCode.NONE)
        then = Answer(group_id=group.group_id, request_id=event.request_id, response=done, failed=done)
        records = rules.forgotten(group)
        if records:
            self._table.append(group.group_id, records, then)
        else:  # ids were handed out, nothing else
            self._table.reply(event.request_id, done)

    def delete_offsets(self, event: DeleteOffsets) -> None:
        """Drop single offsets (KIP-496)."""
        group = self._table.groups.get(event.group_id)
        error = rules.deletion_problem(group)
        if group is None or error is not ErrorCode.NONE:
            self._table.reply(event.request_id, DeleteOffsetsResult(error=error))
            return
        errors, records = rules.decide_deletion(group, event.partitions)
        done = DeleteOffsetsResult(error=ErrorCode.NONE, errors=errors)
        if not records:
            self._table.reply(event.request_id, done)
            return
        then = Answer(group_id=group.group_id, request_id=event.request_id, response=done, failed=done)
        self._table.append(group.group_id, records, then)

    def replayed(self, event: Replayed) -> None:
        """Read the log's offsets against the topics there are: of what is gone nothing stays, ids are written down."""
        unnamed = {
            topic
            for group in self._table.groups.values()
            for (topic, _), offset in group.offsets.items()
            if offset.topic_id == ZERO_UUID
        }
        at_start = {name: topic.topic_id for name in unnamed if (topic := event.image.topics.get(name)) is not None}
        topics = self._table.topics = Topics(image=event.image, at_start=at_start)
        for group in list(self._table.groups.values()):
            names = {topic for topic, _ in group.offsets}
            self._table.keep(group, (*rules.foreign(group, topics, names), *rules.without_id(group, topics)))

    def image_changed(self, event: ImageChanged) -> None:
        """Drop the offsets in topics that are gone."""
        topics = self._table.topics = self._table.topics.after(event.image)
        if event.gone:
            for group in list(self._table.groups.values()):
                self._table.keep(group, rules.foreign(group, topics, event.gone))

    def expire(self, event: ExpireOffsets, now: Instant) -> None:
        """Drop what nobody has needed for the retention time, and what should have gone or been written earlier."""
        topics = self._table.topics
        for group in [self._table.groups[each] for each in event.group_ids if each in self._table.groups]:
            records = rules.expired(group, topics, self._table.limits.offsets_retention_ms, now.wall_ms)
            self._table.keep(group, records or rules.without_id(group, topics))
            self._table.drop_if_nothing_left(group, now)


def refused(response: Response, error: ErrorCode) -> Response:
    """What is answered instead of `response` when its records could not be written."""
    if isinstance(response, CommitResult):
        return CommitResult(errors=tuple(error if item is ErrorCode.NONE else item for item in response.errors))
    return DeleteOffsetsResult(error=error) if isinstance(response, DeleteOffsetsResult) else ErrorResult(error=error)
