"""Access, credentials, quotas and tokens: what each record does to the image, and back from it."""

import uuid

import pytest
from hypothesis import given, settings

from tests.broker.quorum.random_records import histories
from tidemill.broker.quorum.image import ClusterImage, apply_batch
from tidemill.broker.quorum.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    MetadataRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from tidemill.broker.quorum.security import SecurityImage, quota_key, records_of_security

ALICE, ANYBODY = QuotaEntity(entity_type="user", entity_name="alice"), QuotaEntity(entity_type="user", entity_name=None)
APP = QuotaEntity(entity_type="client-id", entity_name="app")


def after(*records: MetadataRecord) -> SecurityImage:
    return apply_batch(ClusterImage(), records).security


def credential(name: str, mechanism: int, iterations: int = 4096) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=b"x", stored_key=b"y", server_key=b"z", iterations=iterations
    )


def test_a_rule_is_there_until_it_is_removed() -> None:
    rule = AccessControlEntryRecord(
        id=uuid.UUID(int=1),
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    assert dict(after(rule).acls) == {rule.id: rule}
    assert dict(after(rule, RemoveAccessControlEntryRecord(id=rule.id)).acls) == {}
    assert dict(after(RemoveAccessControlEntryRecord(id=rule.id)).acls) == {}


def test_a_user_has_one_credential_per_mechanism() -> None:
    first, second, newer = credential("a", 1), credential("a", 2), credential("a", 1, 8192)
    assert after(first, second, newer).scram["a"] == {1: newer, 2: second}
    left = after(first, second, RemoveUserScramCredentialRecord(name="a", mechanism=1))
    assert left.scram["a"] == {2: second}
    gone = after(first, RemoveUserScramCredentialRecord(name="a", mechanism=1))
    assert "a" not in gone.scram
    assert "a" not in after(RemoveUserScramCredentialRecord(name="a", mechanism=1)).scram


def test_a_quota_is_of_an_entity_however_its_parts_are_ordered() -> None:
    rate = ClientQuotaRecord(entity=(ALICE, APP), key="producer_byte_rate", value=1.0)
    other = ClientQuotaRecord(entity=(APP, ALICE), key="consumer_byte_rate", value=2.0)
    image = after(rate, other)
    assert image.quotas[quota_key((APP, ALICE))].values == {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}
    removed = ClientQuotaRecord(entity=(APP, ALICE), key="producer_byte_rate", value=0, remove=True)
    assert after(rate, other, removed).quotas[quota_key((ALICE, APP))].values == {"consumer_byte_rate": 2.0}
    assert len(after(rate, removed).quotas) == 0
    assert len(after(removed).quotas) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((ALICE,), (ANYBODY,)),
        ((ALICE,), (ALICE, APP)),
        ((QuotaEntity(entity_type="user", entity_name="None"),), (ANYBODY,)),
        (
            (QuotaEntity(entity_type="user", entity_name="a'), ('b"),),
            (QuotaEntity(entity_type="user", entity_name="a"),),
        ),
    ],
)
def test_other_clients_have_another_key(one: tuple[QuotaEntity, ...], other: tuple[QuotaEntity, ...]) -> None:
    assert quota_key(one) != quota_key(other)


def test_a_token_is_renewed_and_removed() -> None:
    token = DelegationTokenRecord(
        owner="User:a",
        requester="User:a",
        renewers=(),
        issue_timestamp=1,
        max_timestamp=9,
        expiration_timestamp=3,
        token_id="t",
    )
    assert dict(after(token).tokens) == {"t": token}
    assert dict(after(token, RemoveDelegationTokenRecord(token_id="t")).tokens) == {}
    assert dict(after(RemoveDelegationTokenRecord(token_id="t")).tokens) == {}


@settings(max_examples=200, deadline=None)
@given(histories())
def test_its_records_lead_back_to_it(records: list[MetadataRecord]) -> None:
    image = after(*records)
    assert after(*records_of_security(image)) == image
