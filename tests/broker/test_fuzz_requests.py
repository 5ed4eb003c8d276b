"""Any bytes for any served API and version: the protocol's own error or a closed connection, never anything else

Four kinds of bytes: random ones behind a valid header, messages made from the schema and then spoiled, frames of real
client libraries and then spoiled, and lengths that promise more than is there. Afterwards the broker still serves, what
is in its logs are whole batches, and no frame made it allocate more than a small multiple of its own size.
"""

import contextlib
import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.request_fuzz import EXTREMES, Fed, client_frames, fed_broker, header, spoil
from tests.core.wire.message_strategies import sample
from tidemill.broker.dispatch import Route
from tidemill.broker.routes import ROUTES
from tidemill.core.records.batch import iter_batches
from tidemill.core.wire.api import ApiKey, api
from tidemill.core.wire.codec import DecodeError, decode, encode
from tidemill.core.wire.messages.metadata import MetadataRequest
from tidemill.core.wire.schema import ApiSchema, load_schemas

SCHEMAS: dict[int, ApiSchema] = {schema.key: schema for schema in load_schemas()}
SERVED = [(route, version) for route in ROUTES for version in range(route.min_version, route.max_version + 1)]
SPOILED_EACH = 12
RANDOM_EACH = 6
ALLOCATED_BYTES_MAX = 1 << 20  # of frames of a few hundred bytes; caches of topic ids may grow now and then
CAPTURED = client_frames()


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fed]:
    with fed_broker(tmp_path_factory.mktemp("fuzz")) as fed:
        yield fed


def serves(fed: Fed) -> None:
    """The broker answers and its logs are whole."""
    request = encode(MetadataRequest(topics=None), 9)
    answer = fed.feed(header(ApiKey.METADATA, 9) + b"\0" + request)
    assert answer.brokers
    for log in fed.broker.logs:
        offset = log.log_start_offset
        while offset < log.committed_offset:
            for view in iter_batches(bytes(log.read(offset, 1 << 20))):
                assert view.verify_crc()
                assert view.base_offset == offset
                assert view.record_count == view.last_offset_delta + 1
                offset = view.next_offset


def request_frame(route: Route, version: int) -> bytes:
    """A well-formed request with every field set."""
    schema = SCHEMAS[route.key]
    tags = b"\0" if version >= api(route.key).flexible_from else b""
    return header(route.key, version) + tags + encode(sample(schema, "request", version), version)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.key.name)
def test_spoiled_messages_and_random_bytes_of_every_version(fed: Fed, route: Route) -> None:
    rng = random.Random(route.key)
    for version in range(route.min_version, route.max_version + 1):
        frame = request_frame(route, version)
        fed.feed(frame)
        for _ in range(SPOILED_EACH):
            fed.feed(spoil(frame, rng))
        for _ in range(RANDOM_EACH):
            fed.feed(header(route.key, version) + b"\0" + rng.randbytes(rng.choice((0, 1, 5, 30, 200))))
    serves(fed)


@pytest.mark.parametrize("client", sorted({frame.client for frame in CAPTURED}))
def test_spoiled_frames_of_real_clients(fed: Fed, client: str) -> None:
    rng = random.Random(client)
    frames = [frame for frame in CAPTURED if frame.client == client]
    assert len(frames) > 10
    for captured in frames:
        fed.feed(captured.frame)
    for captured in frames:
        for _ in range(15):
            fed.feed(spoil(captured.frame, rng))
    assert fed.answered > 100 and fed.closed > 100, "spoiling is neither harmless nor always fatal"
    serves(fed)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(served=st.sampled_from(SERVED), body=st.binary(max_size=300))
def test_whatever_hypothesis_thinks_of(fed: Fed, served: tuple[Route, int], body: bytes) -> None:
    route, version = served
    fed.feed(header(route.key, version) + body)


@given(frame=st.binary(max_size=60))
def test_bytes_that_are_no_header(fed: Fed, frame: bytes) -> None:
    fed.feed(frame)


def test_the_client_frames_are_requests_of_all_four_libraries_and_all_are_answered(fed: Fed) -> None:
    assert {frame.client for frame in CAPTURED} == {"confluent", "kafka_python", "aiokafka", "java"}
    assert len({(frame.api_key, frame.version) for frame in CAPTURED}) > 45
    before = fed.closed
    for captured in CAPTURED:
        fed.feed(captured.frame)
    assert fed.closed == before


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.key.name)
def test_a_length_that_promises_much_costs_nothing(route: Route) -> None:
    request_class = api(route.key).request
    rng = random.Random(route.key)
    for version in range(route.min_version, route.max_version + 1):
        body = encode(sample(SCHEMAS[route.key], "request", version), version)
        tracemalloc.start()
        try:
            for at in rng.sample(range(len(body)), min(len(body), 40)):
                for extreme in EXTREMES[:4]:
                    spoiled = body[:at] + extreme + body[at + len(extreme) :]
                    tracemalloc.reset_peak()
                    before = tracemalloc.get_traced_memory()[0]
                    with contextlib.suppress(DecodeError):
                        decode(request_class, version, spoiled)
                    peak = tracemalloc.get_traced_memory()[1] - before
                    assert peak < ALLOCATED_BYTES_MAX, (version, at, extreme)
        finally:
            tracemalloc.stop()
