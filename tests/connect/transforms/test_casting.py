"""Cast: beyond what Kafka was asked (see test_registry)"""

import math
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.connect.transforms.options_of import applied, made
from tidemill.connect.api import InvalidConfig
from tidemill.connect.transforms.casting import cast, float32


@pytest.mark.parametrize("spec", ["a:bytes", "a:decimal", "int8,string", "a:int8,string", "nothing"])
def test_a_spec_that_makes_no_sense_is_told(spec: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        made("Cast$Value", spec=spec)
    assert caught.value.field_name == "spec"


def test_a_field_may_have_a_colon_in_its_name() -> None:
    assert applied(made("Cast$Value", spec="a:b:string"), {"a:b": 1}).value == {"a:b": "1"}


def test_the_record_given_is_not_changed() -> None:
    value = {"a": "1", "b": [1]}
    assert applied(made("Cast$Value", spec="a:int8"), value).value == {"a": 1, "b": [1]}
    assert value == {"a": "1", "b": [1]}


@given(st.integers(-(1 << 70), 1 << 70), st.sampled_from([8, 16, 32, 64]))
def test_integers_lose_their_upper_bits(value: int, bits: int) -> None:
    low = int.from_bytes(value.to_bytes(16, "little", signed=True)[: bits // 8], "little", signed=True)
    assert cast(value, None, f"int{bits}") == low


@given(st.floats())
def test_a_number_of_32_bits_is_the_nearest(value: float) -> None:
    got = float32(value)
    if math.isnan(value):
        assert math.isnan(got)
    elif math.isinf(got):
        assert abs(value) > 3.4e38
    else:
        assert struct.pack("f", got) == struct.pack("f", value)


@pytest.mark.parametrize(("text", "kind"), [("", "int8"), ("128", "int8"), ("1_0", "int32"), ("inf", "float64")])
def test_a_text_that_is_no_number_is_an_error(text: str, kind: str) -> None:
    with pytest.raises(ValueError):
        cast(text, None, kind)


def test_a_text_of_a_number_may_be_java() -> None:
    assert [cast(each, None, "float64") for each in ("1.5f", " 2d ", "+.5", "Infinity")] == [1.5, 2.0, 0.5, math.inf]


def test_a_number_of_few_letters_and_many_digits_is_cut_at_once() -> None:
    assert cast(Decimal("1E+999999"), None, "int32") == 0 == cast(Decimal("-7E+80"), None, "int64")
    assert cast(Decimal("1E+63"), None, "int64") == cast(10**63, None, "int64") != 0
