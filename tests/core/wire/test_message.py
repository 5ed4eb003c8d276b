"""Messages behave as frozen values"""

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from tidemill.core.wire.codec import decode_exact, encode
from tidemill.core.wire.message import Message, unfrozen_twin
from tidemill.core.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


def test_a_message_cannot_be_changed() -> None:
    built: Any = HeartbeatRequest(group_id="g")
    decoded: Any = decode_exact(HeartbeatRequest, 4, encode(built, 4))
    for message in (built, decoded):
        assert type(message) is HeartbeatRequest
        with pytest.raises(dataclasses.FrozenInstanceError):
            message.group_id = "other"
        with pytest.raises(dataclasses.FrozenInstanceError):
            del message.group_id
        with pytest.raises((AttributeError, TypeError)):
            message.unknown = 1


def test_fields_are_keywords_with_defaults() -> None:
    anything: Any = HeartbeatRequest
    with pytest.raises(TypeError):
        anything("g")
    with pytest.raises(TypeError):
        anything(no_such_field=1)
    assert [f.name for f in dataclasses.fields(HeartbeatRequest)] == [
        "group_id",
        "generation_id",
        "member_id",
        "group_instance_id",
    ]
    assert HeartbeatRequest() == HeartbeatRequest(group_id="", generation_id=0, member_id="", group_instance_id=None)


def test_equality_and_hash_go_by_type_and_values() -> None:
    one = MetadataRequest(topics=(MetadataRequestTopic(name="a"),))
    same = MetadataRequest(topics=(MetadataRequestTopic(name="a"),))
    other = MetadataRequest(topics=(MetadataRequestTopic(name="b"),))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert HeartbeatResponse() != HeartbeatRequest()
    assert HeartbeatResponse() != 0
    assert len({one, same, other}) == 2


def test_repr_reads_like_the_call() -> None:
    assert repr(HeartbeatResponse(error_code=25)) == "HeartbeatResponse(throttle_time_ms=0, error_code=25)"


def test_copies_and_replacements_keep_the_class() -> None:
    message = MetadataRequest(topics=(MetadataRequestTopic(name="a"),))
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message
    replaced = dataclasses.replace(message, allow_auto_topic_creation=False)
    assert type(replaced) is MetadataRequest
    assert replaced.topics == message.topics
    assert not replaced.allow_auto_topic_creation


def test_a_twin_becomes_the_class_it_was_made_for() -> None:
    twin = unfrozen_twin(HeartbeatResponse)()
    twin.throttle_time_ms = 1
    twin.error_code = 2
    twin.__class__ = HeartbeatResponse
    assert twin == HeartbeatResponse(throttle_time_ms=1, error_code=2)
    assert isinstance(twin, Message)
