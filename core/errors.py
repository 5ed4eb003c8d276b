"""One tree of exceptions for every error of the protocol

Code that finds a request at fault raises the class; the dispatcher (broker) and the response readers (client) are the
two places that translate between exception and `error_code`. What a client may do about an error is part of its class:
`retriable` errors pass by themselves, `refresh_metadata` ones need a fresh view of the cluster before the retry, and
`permanent` ones meet whoever reads again with the same answer, until somebody changes a right or stored bytes.

A subclass registers its code by being defined. A code from a newer server, which we have no class for, becomes an
`UnrecognizedError` that keeps the number.
"""

from typing import Any, ClassVar

from .error_code import ErrorCode

_BY_CODE: dict[int, type["KafkaError"]] = {}


class KafkaError(Exception):
    """An error that has a code in the protocol."""

    code: ClassVar[int] = ErrorCode.UNKNOWN_SERVER_ERROR
    retriable: ClassVar[bool] = False
    refresh_metadata: ClassVar[bool] = False
    permanent: ClassVar[bool] = False

    def __init_subclass__(cls, *, code: ErrorCode | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if code is None:
            return
        if code in _BY_CODE:
            raise TypeError(f"{cls.__name__} and {_BY_CODE[code].__name__} both claim error code {code}")
        cls.code = code
        _BY_CODE[code] = cls

    record_errors: tuple[tuple[int, str], ...] = ()
    """Of a batch that is refused for some of its records: their places in it, and what is wrong with each (KIP-467)."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").rstrip("."))

    @property
    def message(self) -> str:
        """What went wrong, in one line."""
        return str(self)


class RetriableError(KafkaError):
    """An error that passes by itself."""

    retriable = True


class MetadataError(RetriableError):
    """An error that says the client's view of the cluster is out of date."""

    refresh_metadata = True


class PermanentError(KafkaError):
    """An error that comes again until somebody changes something."""

    permanent = True


class UnrecognizedError(KafkaError):
    """An error code from a newer server."""

    def __init__(self, unrecognized_code: int, message: str = "") -> None:
        super().__init__(message or f"the server answered with error code {unrecognized_code}, which is not known here")
        self.unrecognized_code = unrecognized_code


def error_for_code(code: int, message: str | None = "") -> KafkaError:
    """Return the exception for a non-zero `code`; `message` is the server's text, if it sent any."""
    if code == ErrorCode.NONE:
        raise ValueError("error code 0 means success")
    cls = _BY_CODE.get(code)
    return UnrecognizedError(code, message or "") if cls is None else cls(message or "")


# The table: one class per code, in order of code.


class UnknownServerError(KafkaError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """The server failed in a way it has no code for."""


class OffsetOutOfRange(KafkaError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """The offset is outside what the partition still holds."""


class CorruptMessage(RetriableError, code=ErrorCode.CORRUPT_MESSAGE):
    """The record batch fails its checksum or is not well formed."""

    permanent = True  # a producer sends its bytes again, a reader gets the same ones


class UnknownTopicOrPartition(MetadataError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    """This server does not host the topic or partition."""


class InvalidFetchSize(KafkaError, code=ErrorCode.INVALID_FETCH_SIZE):
    """The fetch size is not valid."""


class LeaderNotAvailable(MetadataError, code=ErrorCode.LEADER_NOT_AVAILABLE):
    """The partition has no leader at the moment."""


class NotLeaderOrFollower(MetadataError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER):
    """This broker is neither leader nor, for a fetch, replica of the partition."""


class RequestTimedOut(RetriableError, code=ErrorCode.REQUEST_TIMED_OUT):
    """The request was not completed within its timeout."""


class BrokerNotAvailable(KafkaError, code=ErrorCode.BROKER_NOT_AVAILABLE):
    """The broker cannot be reached."""


class ReplicaNotAvailable(MetadataError, code=ErrorCode.REPLICA_NOT_AVAILABLE):
    """The replica is not available on this broker."""


class MessageTooLarge(PermanentError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """The record batch is larger than the topic allows."""


class StaleControllerEpoch(KafkaError, code=ErrorCode.STALE_CONTROLLER_EPOCH):
    """The controller has moved to another broker."""


class OffsetMetadataTooLarge(KafkaError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    """The metadata string of an offset commit is too long."""


class NetworkException(MetadataError, code=ErrorCode.NETWORK_EXCEPTION):
    """The connection broke before the answer arrived."""


class CoordinatorLoadInProgress(RetriableError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
    """The coordinator is still loading its state."""


class CoordinatorNotAvailable(RetriableError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE):
    """The coordinator is not available."""


class NotCoordinator(RetriableError, code=ErrorCode.NOT_COORDINATOR):
    """This broker is not the coordinator."""


class InvalidTopicException(PermanentError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """The topic name is not valid, or the topic may not be written to."""


class RecordListTooLarge(KafkaError, code=ErrorCode.RECORD_LIST_TOO_LARGE):
    """The record batch is larger than a segment."""


class NotEnoughReplicas(RetriableError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    """Fewer replicas are in sync than the topic demands."""


class NotEnoughReplicasAfterAppend(RetriableError, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
    """The records were appended, but too few replicas are in sync."""


class InvalidRequiredAcks(KafkaError, code=ErrorCode.INVALID_REQUIRED_ACKS):
    """The acks value is not -1, 0 or 1."""


class IllegalGeneration(KafkaError, code=ErrorCode.ILLEGAL_GENERATION):
    """The group has moved on to another generation."""


class InconsistentGroupProtocol(KafkaError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """The member shares no protocol with the rest of the group."""


class InvalidGroupId(KafkaError, code=ErrorCode.INVALID_GROUP_ID):
    """The group id is not valid."""


class UnknownMemberId(KafkaError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The group has no such member."""


class InvalidSessionTimeout(KafkaError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    """The session timeout is outside the allowed range."""


class RebalanceInProgress(KafkaError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group is rebalancing; the member has to rejoin."""


class InvalidCommitOffsetSize(KafkaError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
    """The committed offset data is too large."""


class TopicAuthorizationFailed(PermanentError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """The principal may not do this with the topic."""


class GroupAuthorizationFailed(PermanentError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """The principal may not do this with the group."""


class ClusterAuthorizationFailed(PermanentError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """The principal may not do this with the cluster."""


class InvalidTimestamp(KafkaError, code=ErrorCode.INVALID_TIMESTAMP):
    """A record's timestamp is outside the allowed range or of the wrong type."""


class UnsupportedSaslMechanism(PermanentError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    """The server does not offer this SASL mechanism."""


class IllegalSaslState(PermanentError, code=ErrorCode.ILLEGAL_SASL_STATE):
    """The request is not possible at this point of authentication."""


class UnsupportedVersion(PermanentError, code=ErrorCode.UNSUPPORTED_VERSION):
    """The server does not serve this version of the API."""


class TopicAlreadyExists(KafkaError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic with this name exists already."""


class InvalidPartitions(KafkaError, code=ErrorCode.INVALID_PARTITIONS):
    """The number of partitions is not valid."""


class InvalidReplicationFactor(KafkaError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """The replication factor is not valid or exceeds the number of brokers."""


class InvalidReplicaAssignment(KafkaError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    """The replica assignment is not valid."""


class InvalidConfig(KafkaError, code=ErrorCode.INVALID_CONFIG):
    """A configuration value is not valid."""


class NotController(RetriableError, code=ErrorCode.NOT_CONTROLLER):
    """This broker is not the controller."""


class InvalidRequest(KafkaError, code=ErrorCode.INVALID_REQUEST):
    """The request contradicts itself or the protocol."""


class UnsupportedForMessageFormat(PermanentError, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
    """The message format does not support the operation."""


class PolicyViolation(KafkaError, code=ErrorCode.POLICY_VIOLATION):
    """A policy of the cluster forbids the request."""


class OutOfOrderSequenceNumber(KafkaError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """The producer's sequence number does not follow the last one."""


class DuplicateSequenceNumber(KafkaError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    """The producer's sequence number was appended before."""


class InvalidProducerEpoch(KafkaError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """A producer with a newer epoch has taken over."""


class InvalidTxnState(KafkaError, code=ErrorCode.INVALID_TXN_STATE):
    """The transaction is in a state that does not allow the request."""


class InvalidProducerIdMapping(KafkaError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING):
    """The producer id does not belong to the transactional id."""


class InvalidTransactionTimeout(KafkaError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT):
    """The transaction timeout is larger than the broker allows."""


class ConcurrentTransactions(RetriableError, code=ErrorCode.CONCURRENT_TRANSACTIONS):
    """Another operation on the same transaction is under way."""


class TransactionCoordinatorFenced(KafkaError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED):
    """A newer transaction coordinator has taken over."""


class TransactionalIdAuthorizationFailed(PermanentError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
    """The principal may not use the transactional id."""


class SecurityDisabled(PermanentError, code=ErrorCode.SECURITY_DISABLED):
    """Security is switched off."""


class OperationNotAttempted(KafkaError, code=ErrorCode.OPERATION_NOT_ATTEMPTED):
    """The operation was not attempted because another one in the request failed."""


class KafkaStorageError(MetadataError, code=ErrorCode.KAFKA_STORAGE_ERROR):
    """The disk of the partition failed."""


class LogDirNotFound(KafkaError, code=ErrorCode.LOG_DIR_NOT_FOUND):
    """The log directory is not in the broker's configuration."""


class SaslAuthenticationFailed(PermanentError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    """The SASL credentials were refused."""


class UnknownProducerId(KafkaError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """The partition holds no state of the producer id."""


class ReassignmentInProgress(KafkaError, code=ErrorCode.REASSIGNMENT_IN_PROGRESS):
    """The partition is being reassigned."""


class DelegationTokenAuthDisabled(PermanentError, code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
    """Delegation tokens are switched off."""


class DelegationTokenNotFound(PermanentError, code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
    """The delegation token does not exist."""


class DelegationTokenOwnerMismatch(KafkaError, code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
    """The principal neither owns nor may renew the delegation token."""


class DelegationTokenRequestNotAllowed(KafkaError, code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED):
    """Delegation tokens may not be requested over this connection."""


class DelegationTokenAuthorizationFailed(PermanentError, code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED):
    """The principal may not do this with the delegation token."""


class DelegationTokenExpired(PermanentError, code=ErrorCode.DELEGATION_TOKEN_EXPIRED):
    """The delegation token has expired."""


class InvalidPrincipalType(KafkaError, code=ErrorCode.INVALID_PRINCIPAL_TYPE):
    """The principal type is not supported."""


class NonEmptyGroup(KafkaError, code=ErrorCode.NON_EMPTY_GROUP):
    """The group still has members."""


class GroupIdNotFound(KafkaError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """The group does not exist."""


class FetchSessionIdNotFound(RetriableError, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
    """The fetch session does not exist."""


class InvalidFetchSessionEpoch(RetriableError, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH):
    """The fetch session expects another epoch."""


class ListenerNotFound(MetadataError, code=ErrorCode.LISTENER_NOT_FOUND):
    """The leader has no listener with the name of the one this request came through."""


class TopicDeletionDisabled(KafkaError, code=ErrorCode.TOPIC_DELETION_DISABLED):
    """Deleting topics is switched off."""


class FencedLeaderEpoch(MetadataError, code=ErrorCode.FENCED_LEADER_EPOCH):
    """The leader epoch in the request is older than the broker's."""


class UnknownLeaderEpoch(RetriableError, code=ErrorCode.UNKNOWN_LEADER_EPOCH):
    """The leader epoch in the request is newer than the broker's."""


class UnsupportedCompressionType(PermanentError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
    """The client's version does not support the compression of the data."""


class StaleBrokerEpoch(KafkaError, code=ErrorCode.STALE_BROKER_EPOCH):
    """The broker epoch is not the current one."""


class OffsetNotAvailable(RetriableError, code=ErrorCode.OFFSET_NOT_AVAILABLE):
    """The high watermark of the new leader is not known yet."""


class MemberIdRequired(KafkaError, code=ErrorCode.MEMBER_ID_REQUIRED):
    """The member has to join again with the id it was given."""


class PreferredLeaderNotAvailable(MetadataError, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE):
    """The preferred leader is not available."""


class GroupMaxSizeReached(KafkaError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """The group has reached its largest size."""


class FencedInstanceId(KafkaError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another member with the same group instance id has taken over."""


class EligibleLeadersNotAvailable(MetadataError, code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE):
    """No eligible leader is available."""


class ElectionNotNeeded(MetadataError, code=ErrorCode.ELECTION_NOT_NEEDED):
    """The partition needs no leader election."""


class NoReassignmentInProgress(KafkaError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
    """The partition is not being reassigned."""


class GroupSubscribedToTopic(KafkaError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    """The group is subscribed to the topic, so its offsets cannot be deleted."""


class InvalidRecord(KafkaError, code=ErrorCode.INVALID_RECORD):
    """A record in the batch breaks a rule of the topic or the format."""


class UnstableOffsetCommit(RetriableError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT):
    """An open transaction may still change the committed offset."""


class ThrottlingQuotaExceeded(RetriableError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED):
    """The quota is used up; the client has to wait."""


class ProducerFenced(KafkaError, code=ErrorCode.PRODUCER_FENCED):
    """Another producer with the same transactional id has taken over."""


class ResourceNotFound(KafkaError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """The resource does not exist."""


class DuplicateResource(KafkaError, code=ErrorCode.DUPLICATE_RESOURCE):
    """The resource exists already or is named twice."""


class UnacceptableCredential(KafkaError, code=ErrorCode.UNACCEPTABLE_CREDENTIAL):
    """The credential does not meet the rules."""


class InconsistentVoterSet(KafkaError, code=ErrorCode.INCONSISTENT_VOTER_SET):
    """The two sides of the quorum know different voters."""


class InvalidUpdateVersion(KafkaError, code=ErrorCode.INVALID_UPDATE_VERSION):
    """The update is based on an old version."""


class FeatureUpdateFailed(KafkaError, code=ErrorCode.FEATURE_UPDATE_FAILED):
    """The feature could not be updated."""


class PrincipalDeserializationFailure(KafkaError, code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE):
    """The forwarded principal cannot be read."""


class SnapshotNotFound(KafkaError, code=ErrorCode.SNAPSHOT_NOT_FOUND):
    """The snapshot does not exist."""


class PositionOutOfRange(KafkaError, code=ErrorCode.POSITION_OUT_OF_RANGE):
    """The position is outside the snapshot."""


class UnknownTopicId(MetadataError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    """This server hosts no topic with the id."""


class DuplicateBrokerRegistration(KafkaError, code=ErrorCode.DUPLICATE_BROKER_REGISTRATION):
    """A broker with the same id is registered."""


class BrokerIdNotRegistered(KafkaError, code=ErrorCode.BROKER_ID_NOT_REGISTERED):
    """No broker with this id is registered."""


class InconsistentTopicId(MetadataError, code=ErrorCode.INCONSISTENT_TOPIC_ID):
    """The topic id is not the one the log was created for."""


class InconsistentClusterId(KafkaError, code=ErrorCode.INCONSISTENT_CLUSTER_ID):
    """The request is meant for another cluster."""


class TransactionalIdNotFound(KafkaError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
    """The transactional id does not exist."""


class FetchSessionTopicIdError(RetriableError, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
    """The fetch session mixes topic ids and topic names."""


class IneligibleReplica(KafkaError, code=ErrorCode.INELIGIBLE_REPLICA):
    """The replica may not join the in-sync set."""


class NewLeaderElected(KafkaError, code=ErrorCode.NEW_LEADER_ELECTED):
    """The change elected a new leader."""


class OffsetMovedToTieredStorage(KafkaError, code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
    """The offset is only in tiered storage now."""


class FencedMemberEpoch(KafkaError, code=ErrorCode.FENCED_MEMBER_EPOCH):
    """The group knows a newer epoch of the member."""


class UnreleasedInstanceId(KafkaError, code=ErrorCode.UNRELEASED_INSTANCE_ID):
    """Another member still holds the group instance id."""


class UnsupportedAssignor(KafkaError, code=ErrorCode.UNSUPPORTED_ASSIGNOR):
    """The group coordinator does not know the assignor."""


class StaleMemberEpoch(KafkaError, code=ErrorCode.STALE_MEMBER_EPOCH):
    """The member epoch is behind; the member has to send a heartbeat first."""


class MismatchedEndpointType(KafkaError, code=ErrorCode.MISMATCHED_ENDPOINT_TYPE):
    """The request went to a broker instead of a controller, or the other way round."""


class UnsupportedEndpointType(KafkaError, code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE):
    """The endpoint type is not supported."""


class UnknownControllerId(KafkaError, code=ErrorCode.UNKNOWN_CONTROLLER_ID):
    """No controller with this id is registered."""


class UnknownSubscriptionId(KafkaError, code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
    """The telemetry subscription is not the current one."""


class TelemetryTooLarge(KafkaError, code=ErrorCode.TELEMETRY_TOO_LARGE):
    """The telemetry is larger than the broker accepts."""


class InvalidRegistration(KafkaError, code=ErrorCode.INVALID_REGISTRATION):
    """The registration of the controller is not valid."""


class TransactionAbortable(KafkaError, code=ErrorCode.TRANSACTION_ABORTABLE):
    """The transaction can only be aborted."""


class InvalidRecordState(KafkaError, code=ErrorCode.INVALID_RECORD_STATE):
    """The record's state does not allow the acknowledgement."""


class ShareSessionNotFound(RetriableError, code=ErrorCode.SHARE_SESSION_NOT_FOUND):
    """The share session does not exist."""


class InvalidShareSessionEpoch(RetriableError, code=ErrorCode.INVALID_SHARE_SESSION_EPOCH):
    """The share session expects another epoch."""


class FencedStateEpoch(KafkaError, code=ErrorCode.FENCED_STATE_EPOCH):
    """The share state knows a newer epoch."""


class InvalidVoterKey(KafkaError, code=ErrorCode.INVALID_VOTER_KEY):
    """The voter key does not match this node."""


class DuplicateVoter(KafkaError, code=ErrorCode.DUPLICATE_VOTER):
    """The voter is in the set already."""


class VoterNotFound(KafkaError, code=ErrorCode.VOTER_NOT_FOUND):
    """The voter is not in the set."""


class InvalidRegularExpression(KafkaError, code=ErrorCode.INVALID_REGULAR_EXPRESSION):
    """The subscription's regular expression is not valid."""


class RebootstrapRequired(KafkaError, code=ErrorCode.REBOOTSTRAP_REQUIRED):
    """The client has to start again from its bootstrap servers."""


class StreamsInvalidTopology(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY):
    """The topology of the streams group is not valid."""


class StreamsInvalidTopologyEpoch(KafkaError, code=ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH):
    """The topology epoch of the streams group is not valid."""


class StreamsTopologyFenced(KafkaError, code=ErrorCode.STREAMS_TOPOLOGY_FENCED):
    """The topology epoch of the streams group is outdated."""


class ShareSessionLimitReached(RetriableError, code=ErrorCode.SHARE_SESSION_LIMIT_REACHED):
    """The broker holds as many share sessions as it allows."""
