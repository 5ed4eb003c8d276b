"""What a produce error means for a partition: a table

Three kinds: what passes by itself, what an operator has to mend (the partition is parked and tried again), and what
must not be tried again because somebody else owns the topic. The hints say what to mend. Beside it stands whether the
answer leaves open that the batch is in the log, or will be.
"""

from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import error_for_code
from tidemill.mirror.link_events import Trouble

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_DAMAGED = ErrorCode.CORRUPT_MESSAGE
_IN_DOUBT = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
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
    if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
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
