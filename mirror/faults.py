"""What an error of a cluster means for a partition: tables

What the target refuses is of three kinds: what passes by itself, what an operator has to mend (the partition is parked
and tried again), and what must not be tried again because somebody else owns the topic. The hints say what to mend.
Beside it stands whether the answer leaves open that the batch is in the log, or will be. What the source refuses is
always tried again.
"""

from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import error_for_code
from tidemill.mirror.link_events import Trouble

_ELSEWHERE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""The target is not where it was looked at. A duplicate of which it only knows the numbers is none of what this mirror
has under way, of which the target remembers all: another mirror was there first, and its batches with the same numbers
may have other records where the source was compacted. So the target is looked at again, as for the other."""

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_DAMAGED = ErrorCode.CORRUPT_MESSAGE
_IN_DOUBT = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        # Also what a leader says that appended the batch and lost its office while it waited for the replicas: the
        # next leader may have the batch.
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

_HINTS: dict[int, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the target topic",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the target topic",
    ErrorCode.INVALID_TIMESTAMP: (
        "relax message.timestamp.before.max.ms and message.timestamp.after.max.ms of the target topic"
    ),
    ErrorCode.INVALID_RECORD: "the target refuses the records, for example keyless ones in a compacted topic",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the target does not know the source's compression codec",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "grant the mirror WRITE on the target topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "grant the mirror IDEMPOTENT_WRITE on the target cluster",
    ErrorCode.POLICY_VIOLATION: "a policy of the target refuses the batch",
}


def judge_produce(code: int, message: str | None, size_bytes: int) -> tuple[Trouble, str]:
    """Trouble and reason for a refused batch of `size_bytes`."""
    error = error_for_code(code, message or "")
    if code in _ELSEWHERE:
        return Trouble.OUT_OF_ORDER, str(error)
    if code in _FENCED:
        return Trouble.FAIL, f"another mirror has taken over: {error}"
    if code == _DAMAGED:
        return Trouble.REREAD, str(error)
    if error.retriable or code == ErrorCode.UNKNOWN_PRODUCER_ID:
        return Trouble.RETRY, str(error)
    hint = _HINTS.get(code)
    return Trouble.PARK, f"the target refused a batch of {size_bytes} bytes: {error}" + (f" ({hint})" if hint else "")


def leaves_in_doubt(code: int) -> bool:
    """Whether a batch answered with that error may be in the log all the same."""
    return code in _IN_DOUBT


_SOURCE_HINTS: dict[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "grant the mirror READ on the source topic",
    ErrorCode.UNKNOWN_TOPIC_ID: "the source topic was deleted, and perhaps created again",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the source topic was deleted, or is hidden from the mirror",
    ErrorCode.KAFKA_STORAGE_ERROR: "repair the disk of the source's broker",
}


def judge_fetch(code: int) -> str:
    """Reason for an answer of the source without data; it is always tried again."""
    hint = _SOURCE_HINTS.get(code)
    return f"the source: {error_for_code(code)}" + (f" ({hint})" if hint else "")
