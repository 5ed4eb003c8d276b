"""The table of APIs: key, name, versions and message classes

`ApiKey` names every key of the protocol, so that a log line can name a request we do not serve; `ALL_APIS` lists those
with a schema. Message modules are imported when `Api.request` or `Api.response` is first read.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib import import_module

from .message import Message
from .messages import API_ROWS


class ApiKey(IntEnum):
    """API keys with Kafka's names."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


@cache
def _message_class(module: str, name: str) -> type[Message]:
    loaded: type[Message] = getattr(import_module(f".messages.{module}", __package__), name)
    return loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API we have a schema for."""

    key: ApiKey
    name: str
    module: str
    min_version: int
    max_version: int
    flexible_from: int

    @property
    def request(self) -> type[Message]:
        """The request class."""
        return _message_class(self.module, f"{self.name}Request")

    @property
    def response(self) -> type[Message]:
        """The response class."""
        return _message_class(self.module, f"{self.name}Response")

    def serves(self, version: int) -> bool:
        """Whether `version` is inside the window."""
        return self.min_version <= version <= self.max_version

    def request_header_version(self, version: int) -> int:
        """2 (client id, tags) for flexible versions, else 1 (client id)."""
        return 2 if version >= self.flexible_from else 1

    def response_header_version(self, version: int) -> int:
        """1 (tags) for flexible versions, else 0; ApiVersions always 0, a client cannot know the version yet."""
        return 1 if version >= self.flexible_from and self.key is not ApiKey.API_VERSIONS else 0


ALL_APIS: tuple[Api, ...] = tuple(
    Api(key=ApiKey(key), name=name, module=module, min_version=low, max_version=high, flexible_from=flexible)
    for key, name, module, low, high, flexible in API_ROWS
)
_BY_KEY: dict[int, Api] = {api.key: api for api in ALL_APIS}


def api(key: int) -> Api:
    """Return the API with `key`; KeyError if we have no schema for it."""
    return _BY_KEY[key]


@cache
def response_of(key: int) -> type[Message]:
    """Return the response class of the API with `key`, at once: this is asked for with each answer."""
    return api(key).response


def find_api(key: int) -> Api | None:
    """Return the API with `key`, or None if we have no schema for it."""
    return _BY_KEY.get(key)


def api_of(message: type[Message]) -> Api | None:
    """Return the API whose request or response `message` is, or None if it is neither of any."""
    module = message.__module__.rpartition(".")[2]
    found = next((entry for entry in ALL_APIS if entry.module == module), None)
    return found if found is not None and message in (found.request, found.response) else None
