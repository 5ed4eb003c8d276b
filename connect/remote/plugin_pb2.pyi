from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromTask(_message.Message):
    __slots__ = ("hello", "started", "failed", "completed", "paused", "resumed", "report", "checked", "overdue", "answer", "ended", "seat")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    CHECKED_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    SEAT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    started: Started
    failed: Failed
    completed: Completed
    paused: Paused
    resumed: Resumed
    report: Report
    checked: Checked
    overdue: Overdue
    answer: Answer
    ended: Ended
    seat: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., started: _Optional[_Union[Started, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., completed: _Optional[_Union[Completed, _Mapping]] = ..., paused: _Optional[_Union[Paused, _Mapping]] = ..., resumed: _Optional[_Union[Resumed, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., checked: _Optional[_Union[Checked, _Mapping]] = ..., overdue: _Optional[_Union[Overdue, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., seat: _Optional[int] = ...) -> None: ...

class ToTask(_message.Message):
    __slots__ = ("start", "check", "stop", "pause", "resume", "question", "share", "seat")
    START_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SEAT_FIELD_NUMBER: _ClassVar[int]
    start: TaskSpec
    check: Check
    stop: Stop
    pause: Pause
    resume: Resume
    question: Question
    share: Share
    seat: int
    def __init__(self, start: _Optional[_Union[TaskSpec, _Mapping]] = ..., check: _Optional[_Union[Check, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., question: _Optional[_Union[Question, _Mapping]] = ..., share: _Optional[_Union[Share, _Mapping]] = ..., seat: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "pid", "standstill_fd", "shares")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STANDSTILL_FD_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    pid: int
    standstill_fd: int
    shares: bool
    def __init__(self, protocol_version: _Optional[int] = ..., pid: _Optional[int] = ..., standstill_fd: _Optional[int] = ..., shares: _Optional[bool] = ...) -> None: ...

class TaskSpec(_message.Message):
    __slots__ = ("connector", "task", "incarnation", "plugin", "kind", "config", "bootstrap_servers", "key_converter", "value_converter", "offsets_topic", "worker_id", "client_config", "producer_config", "consumer_config", "offset_flush_interval_ms", "offset_flush_timeout_ms", "initial_state", "environment")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ClientConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ProducerConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ConsumerConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONNECTOR_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    BOOTSTRAP_SERVERS_FIELD_NUMBER: _ClassVar[int]
    KEY_CONVERTER_FIELD_NUMBER: _ClassVar[int]
    VALUE_CONVERTER_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_TOPIC_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_CONFIG_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FLUSH_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FLUSH_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_STATE_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    connector: str
    task: int
    incarnation: int
    plugin: str
    kind: str
    config: _containers.ScalarMap[str, str]
    bootstrap_servers: str
    key_converter: Converter
    value_converter: Converter
    offsets_topic: str
    worker_id: str
    client_config: _containers.ScalarMap[str, str]
    producer_config: _containers.ScalarMap[str, str]
    consumer_config: _containers.ScalarMap[str, str]
    offset_flush_interval_ms: int
    offset_flush_timeout_ms: int
    initial_state: str
    environment: str
    def __init__(self, connector: _Optional[str] = ..., task: _Optional[int] = ..., incarnation: _Optional[int] = ..., plugin: _Optional[str] = ..., kind: _Optional[str] = ..., config: _Optional[_Mapping[str, str]] = ..., bootstrap_servers: _Optional[str] = ..., key_converter: _Optional[_Union[Converter, _Mapping]] = ..., value_converter: _Optional[_Union[Converter, _Mapping]] = ..., offsets_topic: _Optional[str] = ..., worker_id: _Optional[str] = ..., client_config: _Optional[_Mapping[str, str]] = ..., producer_config: _Optional[_Mapping[str, str]] = ..., consumer_config: _Optional[_Mapping[str, str]] = ..., offset_flush_interval_ms: _Optional[int] = ..., offset_flush_timeout_ms: _Optional[int] = ..., initial_state: _Optional[str] = ..., environment: _Optional[str] = ...) -> None: ...

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

class Check(_message.Message):
    __slots__ = ("plugin", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    config: _containers.ScalarMap[str, str]
    def __init__(self, plugin: _Optional[str] = ..., config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Checked(_message.Message):
    __slots__ = ("problems",)
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    problems: _containers.RepeatedCompositeFieldContainer[Problem]
    def __init__(self, problems: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("setting", "message")
    SETTING_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    setting: str
    message: str
    def __init__(self, setting: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("plugin", "config", "about", "tasks_max")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    TASKS_MAX_FIELD_NUMBER: _ClassVar[int]
    plugin: str
    config: _containers.ScalarMap[str, str]
    about: str
    tasks_max: int
    def __init__(self, plugin: _Optional[str] = ..., config: _Optional[_Mapping[str, str]] = ..., about: _Optional[str] = ..., tasks_max: _Optional[int] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("json", "trace", "failure")
    JSON_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    trace: str
    failure: str
    def __init__(self, json: _Optional[bytes] = ..., trace: _Optional[str] = ..., failure: _Optional[str] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("grace_ms",)
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    grace_ms: int
    def __init__(self, grace_ms: _Optional[int] = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Resume(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Started(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Failed(_message.Message):
    __slots__ = ("trace", "failure")
    TRACE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    trace: str
    failure: str
    def __init__(self, trace: _Optional[str] = ..., failure: _Optional[str] = ...) -> None: ...

class Completed(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Share(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Ended(_message.Message):
    __slots__ = ("code",)
    CODE_FIELD_NUMBER: _ClassVar[int]
    code: int
    def __init__(self, code: _Optional[int] = ...) -> None: ...

class Overdue(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class Paused(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Resumed(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Report(_message.Message):
    __slots__ = ("facts_json", "trouble")
    FACTS_JSON_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    facts_json: bytes
    trouble: Trouble
    def __init__(self, facts_json: _Optional[bytes] = ..., trouble: _Optional[_Union[Trouble, _Mapping]] = ...) -> None: ...

class Trouble(_message.Message):
    __slots__ = ("message", "since_ms", "attempts", "next_try_ms")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TRY_MS_FIELD_NUMBER: _ClassVar[int]
    message: str
    since_ms: int
    attempts: int
    next_try_ms: int
    def __init__(self, message: _Optional[str] = ..., since_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., next_try_ms: _Optional[int] = ...) -> None: ...
