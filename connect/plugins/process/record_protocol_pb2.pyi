from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    SOURCE: _ClassVar[Role]
    SINK: _ClassVar[Role]
ROLE_UNSPECIFIED: Role
SOURCE: Role
SINK: Role

class ToPlugin(_message.Message):
    __slots__ = ("number", "describe", "validate", "split", "start", "position", "poll", "commit", "open", "close", "put", "flush", "stop")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    PUT_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    number: int
    describe: Describe
    validate: Validate
    split: Split
    start: Start
    position: Position
    poll: Poll
    commit: Commit
    open: Open
    close: Close
    put: Put
    flush: Flush
    stop: Stop
    def __init__(self, number: _Optional[int] = ..., describe: _Optional[_Union[Describe, _Mapping]] = ..., validate: _Optional[_Union[Validate, _Mapping]] = ..., split: _Optional[_Union[Split, _Mapping]] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., position: _Optional[_Union[Position, _Mapping]] = ..., poll: _Optional[_Union[Poll, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ..., put: _Optional[_Union[Put, _Mapping]] = ..., flush: _Optional[_Union[Flush, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ...) -> None: ...

class FromPlugin(_message.Message):
    __slots__ = ("number", "described", "validated", "divided", "started", "polled", "opened", "taken", "done", "error", "log", "waiting")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DESCRIBED_FIELD_NUMBER: _ClassVar[int]
    VALIDATED_FIELD_NUMBER: _ClassVar[int]
    DIVIDED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    POLLED_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    number: int
    described: Described
    validated: Validated
    divided: Divided
    started: Started
    polled: Polled
    opened: Opened
    taken: Taken
    done: Done
    error: Error
    log: Log
    waiting: Waiting
    def __init__(self, number: _Optional[int] = ..., described: _Optional[_Union[Described, _Mapping]] = ..., validated: _Optional[_Union[Validated, _Mapping]] = ..., divided: _Optional[_Union[Divided, _Mapping]] = ..., started: _Optional[_Union[Started, _Mapping]] = ..., polled: _Optional[_Union[Polled, _Mapping]] = ..., opened: _Optional[_Union[Opened, _Mapping]] = ..., taken: _Optional[_Union[Taken, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., log: _Optional[_Union[Log, _Mapping]] = ..., waiting: _Optional[_Union[Waiting, _Mapping]] = ...) -> None: ...

class Describe(_message.Message):
    __slots__ = ("protocol_version", "role")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    role: Role
    def __init__(self, protocol_version: _Optional[int] = ..., role: _Optional[_Union[Role, str]] = ...) -> None: ...

class Described(_message.Message):
    __slots__ = ("protocol_version", "name", "version", "settings")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    name: str
    version: str
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    def __init__(self, protocol_version: _Optional[int] = ..., name: _Optional[str] = ..., version: _Optional[str] = ..., settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ("name", "type", "required", "default", "documentation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    required: bool
    default: str
    documentation: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., required: _Optional[bool] = ..., default: _Optional[str] = ..., documentation: _Optional[str] = ...) -> None: ...

class Validate(_message.Message):
    __slots__ = ("config",)
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    config: _containers.ScalarMap[str, str]
    def __init__(self, config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Validated(_message.Message):
    __slots__ = ("problems",)
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    problems: _containers.RepeatedCompositeFieldContainer[SettingProblem]
    def __init__(self, problems: _Optional[_Iterable[_Union[SettingProblem, _Mapping]]] = ...) -> None: ...

class SettingProblem(_message.Message):
    __slots__ = ("setting", "message")
    SETTING_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    setting: str
    message: str
    def __init__(self, setting: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Split(_message.Message):
    __slots__ = ("config", "tasks_max")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TASKS_MAX_FIELD_NUMBER: _ClassVar[int]
    config: _containers.ScalarMap[str, str]
    tasks_max: int
    def __init__(self, config: _Optional[_Mapping[str, str]] = ..., tasks_max: _Optional[int] = ...) -> None: ...

class Divided(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskConfig]
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskConfig, _Mapping]]] = ...) -> None: ...

class TaskConfig(_message.Message):
    __slots__ = ("changes",)
    class ChangesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.ScalarMap[str, str]
    def __init__(self, changes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("connector", "task", "config", "key_converter", "value_converter")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONNECTOR_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    KEY_CONVERTER_FIELD_NUMBER: _ClassVar[int]
    VALUE_CONVERTER_FIELD_NUMBER: _ClassVar[int]
    connector: str
    task: int
    config: _containers.ScalarMap[str, str]
    key_converter: Converter
    value_converter: Converter
    def __init__(self, connector: _Optional[str] = ..., task: _Optional[int] = ..., config: _Optional[_Mapping[str, str]] = ..., key_converter: _Optional[_Union[Converter, _Mapping]] = ..., value_converter: _Optional[_Union[Converter, _Mapping]] = ...) -> None: ...

class Converter(_message.Message):
    __slots__ = ("kind", "options")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    options: _containers.ScalarMap[str, str]
    def __init__(self, kind: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ("wanted",)
    WANTED_FIELD_NUMBER: _ClassVar[int]
    wanted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, wanted: _Optional[_Iterable[str]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[SourcePosition]
    def __init__(self, positions: _Optional[_Iterable[_Union[SourcePosition, _Mapping]]] = ...) -> None: ...

class SourcePosition(_message.Message):
    __slots__ = ("source_partition", "source_offset")
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    source_partition: str
    source_offset: str
    def __init__(self, source_partition: _Optional[str] = ..., source_offset: _Optional[str] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RecordBatch(_message.Message):
    __slots__ = ("topic", "keys", "values", "null_keys", "null_values", "headers", "timestamps_ms", "source_partition", "source_offset", "partition", "offsets")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    NULL_KEYS_FIELD_NUMBER: _ClassVar[int]
    NULL_VALUES_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    null_keys: _containers.RepeatedScalarFieldContainer[int]
    null_values: _containers.RepeatedScalarFieldContainer[int]
    headers: _containers.RepeatedCompositeFieldContainer[Headers]
    timestamps_ms: _containers.RepeatedScalarFieldContainer[int]
    source_partition: str
    source_offset: str
    partition: int
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., null_keys: _Optional[_Iterable[int]] = ..., null_values: _Optional[_Iterable[int]] = ..., headers: _Optional[_Iterable[_Union[Headers, _Mapping]]] = ..., timestamps_ms: _Optional[_Iterable[int]] = ..., source_partition: _Optional[str] = ..., source_offset: _Optional[str] = ..., partition: _Optional[int] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class Headers(_message.Message):
    __slots__ = ("headers",)
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Poll(_message.Message):
    __slots__ = ("wait_ms", "records_max", "bytes_max")
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    wait_ms: int
    records_max: int
    bytes_max: int
    def __init__(self, wait_ms: _Optional[int] = ..., records_max: _Optional[int] = ..., bytes_max: _Optional[int] = ...) -> None: ...

class Polled(_message.Message):
    __slots__ = ("batches", "wanted")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[RecordBatch]
    wanted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, batches: _Optional[_Iterable[_Union[RecordBatch, _Mapping]]] = ..., wanted: _Optional[_Iterable[str]] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[SourcePosition]
    def __init__(self, positions: _Optional[_Iterable[_Union[SourcePosition, _Mapping]]] = ...) -> None: ...

class TopicPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[TopicPosition]
    def __init__(self, positions: _Optional[_Iterable[_Union[TopicPosition, _Mapping]]] = ...) -> None: ...

class TopicPosition(_message.Message):
    __slots__ = ("topic", "partition", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ...) -> None: ...

class Put(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[RecordBatch]
    def __init__(self, batches: _Optional[_Iterable[_Union[RecordBatch, _Mapping]]] = ...) -> None: ...

class Taken(_message.Message):
    __slots__ = ("refused",)
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    refused: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, refused: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("index", "message", "retry")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    index: int
    message: str
    retry: bool
    def __init__(self, index: _Optional[int] = ..., message: _Optional[str] = ..., retry: _Optional[bool] = ...) -> None: ...

class Flush(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Error(_message.Message):
    __slots__ = ("kind", "message", "stack", "retry_after_ms", "setting")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BUG: _ClassVar[Error.Kind]
        RETRY: _ClassVar[Error.Kind]
        NOT_CONNECTED: _ClassVar[Error.Kind]
        CONFIGURATION: _ClassVar[Error.Kind]
        FATAL: _ClassVar[Error.Kind]
        END_OF_INPUT: _ClassVar[Error.Kind]
    BUG: Error.Kind
    RETRY: Error.Kind
    NOT_CONNECTED: Error.Kind
    CONFIGURATION: Error.Kind
    FATAL: Error.Kind
    END_OF_INPUT: Error.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    SETTING_FIELD_NUMBER: _ClassVar[int]
    kind: Error.Kind
    message: str
    stack: str
    retry_after_ms: int
    setting: str
    def __init__(self, kind: _Optional[_Union[Error.Kind, str]] = ..., message: _Optional[str] = ..., stack: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., setting: _Optional[str] = ...) -> None: ...

class Log(_message.Message):
    __slots__ = ("level", "message")
    class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INFO: _ClassVar[Log.Level]
        DEBUG: _ClassVar[Log.Level]
        WARNING: _ClassVar[Log.Level]
        ERROR: _ClassVar[Log.Level]
    INFO: Log.Level
    DEBUG: Log.Level
    WARNING: Log.Level
    ERROR: Log.Level
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    level: Log.Level
    message: str
    def __init__(self, level: _Optional[_Union[Log.Level, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...
