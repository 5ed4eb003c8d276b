"""Headers, whole and damaged anyhow"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.codec import DecodeError
from tidemill.core.wire.framing import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_request_chunks,
    encode_response,
    response_correlation_id,
)
from tidemill.core.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemill.core.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidemill.core.wire.messages.metadata import MetadataRequest, MetadataResponse
from tidemill.core.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


@pytest.mark.parametrize("client_id", [None, "", "käse", "x" * 200])
@pytest.mark.parametrize(("key", "version"), [(3, 8), (3, 9), (18, 2), (18, 3), (0, 13)])
def test_request_headers_survive(key: int, version: int, client_id: str | None) -> None:
    message = {3: MetadataRequest(), 18: ApiVersionsRequest(), 0: ProduceRequest()}[key]
    frame = encode_request(key, version, 77, client_id, message)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header, offset = decode_request_header(frame[4:])
    assert header == RequestHeader(key, version, 77, client_id)
    tagged = 1 if version >= {3: 9, 18: 3, 0: 9}[key] else 0
    assert offset == 10 + len((client_id or "").encode()) + tagged


def test_golden_bytes_of_headers() -> None:
    request = encode_request(ApiKey.API_VERSIONS, 3, 1, "ab", ApiVersionsRequest(client_software_name="c"))
    assert request.hex() == "00000011" + "0012" + "0003" + "00000001" + "0002" + "6162" + "00" + "0263" + "01" + "00"
    versions = b"".join(encode_response(ApiKey.API_VERSIONS, 3, 1, ApiVersionsResponse(error_code=35)))
    assert versions.hex() == "0000000c" + "00000001" + "0023" + "01" + "00000000" + "00"
    metadata = b"".join(encode_response(ApiKey.METADATA, 13, 2, MetadataResponse()))
    assert metadata[4:9].hex() == "00000002" + "00"


def test_unknown_header_tags_are_skipped() -> None:
    frame = bytearray(encode_request(3, 9, 5, "c", MetadataRequest())[4:])
    assert frame[11] == 0
    frame[11:12] = b"\x01\x07\x02xy"
    header, offset = decode_request_header(bytes(frame))
    assert (header.correlation_id, offset) == (5, 16)
    response = b"".join(encode_response(3, 9, 5, MetadataResponse(cluster_id="c")))[4:]
    tagged = response[:4] + b"\x01\x07\x02xy" + response[5:]
    assert decode_response(3, 9, tagged) == (5, MetadataResponse(cluster_id="c"))


def test_a_header_of_an_unknown_api_is_read_up_to_the_client_id() -> None:
    header, offset = decode_request_header(struct.pack(">hhih", 999, 4, 8, 1) + b"z" + b"rest")
    assert (header, offset) == (RequestHeader(999, 4, 8, "z"), 11)


@pytest.mark.parametrize("version", [8, 9])
def test_a_truncated_request_header_is_a_decode_error(version: int) -> None:
    frame = encode_request(3, version, 5, "client", MetadataRequest())[4:]
    _, offset = decode_request_header(frame)
    for end in range(offset):
        with pytest.raises(DecodeError, match=r"^request header: "):
            decode_request_header(frame[:end])
    with pytest.raises(DecodeError, match="not UTF-8"):
        decode_request_header(struct.pack(">hhih", 3, 8, 5, 2) + b"\xc3\x28")


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_a_decode_error(data: bytes) -> None:
    for buffer in (data, bytearray(data), memoryview(data)):
        try:
            _, offset = decode_request_header(buffer)
        except DecodeError:
            continue
        assert offset <= len(data)


def test_records_travel_uncopied_in_both_directions() -> None:
    records = bytes(5000)
    response = FetchResponse(
        responses=(FetchableTopicResponse(topic="t", partitions=(PartitionData(records=memoryview(records)),)),)
    )
    chunks = encode_response(ApiKey.FETCH, 12, 3, response)
    assert any(isinstance(chunk, memoryview) and chunk.obj is records for chunk in chunks)
    frame = b"".join(chunks)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    assert decode_response(ApiKey.FETCH, 12, frame[4:]) == (3, response)
    request = ProduceRequest(
        topic_data=(TopicProduceData(name="t", partition_data=(PartitionProduceData(records=records),)),)
    )
    parts = encode_request_chunks(ApiKey.PRODUCE, 9, 1, None, request)
    assert any(part is records for part in parts)
    assert b"".join(parts) == encode_request(ApiKey.PRODUCE, 9, 1, None, request)


def test_responses_with_missing_or_extra_bytes_are_refused() -> None:
    frame = b"".join(encode_response(3, 9, 5, MetadataResponse(cluster_id="c")))[4:]
    for end in range(len(frame)):
        with pytest.raises(DecodeError):
            decode_response(3, 9, frame[:end])
    with pytest.raises(DecodeError, match="1 bytes behind"):
        decode_response(3, 9, frame + b"\0")
    assert response_correlation_id(frame) == 5
