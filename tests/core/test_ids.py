"""Ids as text"""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.ids import decode_id, encode_id


@given(st.uuids())
def test_an_id_is_written_as_kafka_writes_it(value: uuid.UUID) -> None:
    text = encode_id(value)
    assert len(text) == 22
    assert decode_id(text) == value


def test_what_is_no_id_is_refused() -> None:
    assert encode_id(uuid.UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    for text in ("", "AAAA", "not an id at all!!"):
        with pytest.raises(ValueError):
            decode_id(text)
