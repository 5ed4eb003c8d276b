"""InitProducerId over the wire"""

from pathlib import Path

import pytest

from tests.broker.broker_world import broker_and_client
from tidemill.core.error_code import ErrorCode
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages.init_producer_id import InitProducerIdRequest


@pytest.mark.parametrize("version", range(6))
async def test_every_producer_gets_an_id_of_its_own(tmp_path: Path, version: int) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        answers = [await client.ask(ApiKey.INIT_PRODUCER_ID, version, request) for _ in range(3)]
        assert len({answer.producer_id for answer in answers}) == 3
        assert all((answer.error_code, answer.producer_epoch) == (0, 0) for answer in answers)


async def test_ids_are_never_given_twice_not_even_after_a_restart(tmp_path: Path) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    given: list[int] = []
    for _ in range(3):
        async with broker_and_client(tmp_path) as (_broker, client):
            given += [(await client.ask(ApiKey.INIT_PRODUCER_ID, 4, request)).producer_id for _ in range(2)]
    assert len(set(given)) == 6


async def test_transactional_producers_are_told_at_once(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        response = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, request)
        assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert response.producer_id == -1


async def test_an_empty_transactional_id_is_none_at_all(tmp_path: Path) -> None:
    async with broker_and_client(tmp_path) as (_, client):
        request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)
        assert (await client.ask(ApiKey.INIT_PRODUCER_ID, 4, request)).error_code == ErrorCode.INVALID_REQUEST
