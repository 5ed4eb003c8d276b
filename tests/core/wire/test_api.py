"""The table of APIs"""

import subprocess
import sys

import pytest

from tidemill.core.wire.api import ALL_APIS, Api, ApiKey, api, find_api
from tidemill.core.wire.codec import load_layouts


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
    window = range(found.min_version, found.max_version + 1)
    for cls in (found.request, found.response):
        load_layouts(cls)
        assert list(cls.READERS) == list(window) == list(cls.WRITERS)
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


def imported(package: str, program: str) -> list[str]:
    """What `program` prints: it may ask for the modules of `package` that are imported so far with `show()`."""
    show = f"def show(): print(*[m for m in sys.modules if m.startswith('tidemill.core.wire.{package}.')])"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{show}\n{program}"], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def test_the_table_imports_no_message_module() -> None:
    program = "from tidemill.core.wire import api, framing; show(); api.api(12).request; show()"
    assert imported("messages", program) == ["", "tidemill.core.wire.messages.heartbeat"]


def test_an_api_pays_for_its_codec_when_it_is_first_spoken() -> None:
    program = (
        "from tidemill.core.wire.codec import encode; from tidemill.core.wire.messages import fetch, heartbeat\n"
        "show(); encode(heartbeat.HeartbeatRequest(), 4); show()"
    )
    assert imported("layouts", program) == ["", "tidemill.core.wire.layouts.heartbeat"]
