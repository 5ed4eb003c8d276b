"""The table of APIs"""

import subprocess
import sys

import pytest

from tidemill.core.wire.api import ALL_APIS, Api, ApiKey, api, api_of, find_api
from tidemill.core.wire.codec import DecodeError, EncodeError, decode, decode_exact, encode
from tidemill.core.wire.message import Message
from tidemill.core.wire.messages.fetch import ReplicaState


def test_keys_have_kafkas_names() -> None:
    for entry in ALL_APIS:
        assert entry.key.name.replace("_", "").lower() == entry.name.lower()
    assert ApiKey.PRODUCE == 0
    assert ApiKey.DESCRIBE_TOPIC_PARTITIONS == 75
    assert sorted(ApiKey) == list(range(93))


def test_lookup_by_key() -> None:
    assert api(18).name == "ApiVersions"
    assert api(ApiKey.FETCH) is find_api(1)
    assert find_api(17) is None
    assert find_api(-1) is None
    with pytest.raises(KeyError):
        api(17)


@pytest.mark.parametrize("entry", ALL_APIS, ids=lambda entry: entry.name)
def test_message_classes_cover_the_window(entry: Api) -> None:
    found = api(entry.key)
    for cls in (found.request, found.response):
        assert api_of(cls) is found
        for version in range(found.min_version, found.max_version + 1):
            decode_exact(cls, version, encode(cls(), version))
        for version in (found.min_version - 1, found.max_version + 1):
            with pytest.raises(DecodeError, match=f"{cls.__name__} has no version {version}"):
                decode(cls, version, b"")
            with pytest.raises(EncodeError, match=f"{cls.__name__} has no version {version}"):
                encode(cls(), version)
    assert found.request.__name__ == f"{found.name}Request"
    assert found.serves(found.min_version)
    assert not found.serves(found.max_version + 1)


def test_header_versions() -> None:
    produce = api(ApiKey.PRODUCE)
    assert [produce.request_header_version(v) for v in (8, 9)] == [1, 2]
    assert [produce.response_header_version(v) for v in (8, 9)] == [0, 1]
    versions = api(ApiKey.API_VERSIONS)
    assert [versions.request_header_version(v) for v in (2, 3, 99)] == [1, 2, 2]
    assert [versions.response_header_version(v) for v in (2, 3, 4)] == [0, 0, 0]


def test_only_requests_and_responses_belong_to_an_api() -> None:
    assert api_of(Message) is None
    assert api_of(ReplicaState) is None
    with pytest.raises(EncodeError, match="ReplicaState has no version 15"):
        encode(ReplicaState(), 15)


def test_the_table_imports_no_message_module() -> None:
    program = (
        "import sys\n"
        "def show(): print(*[m for m in sys.modules if m.startswith('tidemill.core.wire.messages.')])\n"
        "from tidemill.core.wire import api, framing; show(); api.api(12).request; show()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["", "tidemill.core.wire.messages.heartbeat"]
