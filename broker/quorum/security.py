"""Who may do what, and how much of it, as one immutable value

Rules of access, credentials, quotas and tokens are parts of the cluster that its topics do not need: a decision about
topics shares this value as it is. Each kind is a map of its own, and what is kept is what the record said.

Not here: judging by it, which is what an authorizer and a quota manager do.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from tidemill.broker.quorum.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from tidemill.broker.quorum.shared_map import SharedMap

SecurityRecord: TypeAlias = (
    AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | ClientQuotaRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaImage:
    """The quotas of some clients, by key."""

    entity: tuple[QuotaEntity, ...]
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityImage:
    """Everything that was decided about access and its limits."""

    acls: SharedMap[uuid.UUID, AccessControlEntryRecord] = field(default_factory=SharedMap)
    scram: SharedMap[str, Mapping[int, UserScramCredentialRecord]] = field(default_factory=SharedMap)
    """By user, then by mechanism."""
    quotas: SharedMap[str, QuotaImage] = field(default_factory=SharedMap)
    """By what `quota_key` makes of the entity."""
    tokens: SharedMap[str, DelegationTokenRecord] = field(default_factory=SharedMap)


def quota_key(entity: tuple[QuotaEntity, ...]) -> str:
    """A text that two entities have in common only if they are the same clients, in whatever order they are named.

    >>> quota_key((QuotaEntity(entity_type="user", entity_name=None),))
    "[('user', None)]"
    """
    return repr(sorted(((part.entity_type, part.entity_name) for part in entity), key=repr))


class SecurityDraft:
    """A `SecurityImage` while records are taken in."""

    def __init__(self, image: SecurityImage) -> None:
        self._acls = image.acls.draft()
        self._scram = image.scram.draft()
        self._quotas = image.quotas.draft()
        self._tokens = image.tokens.draft()

    def apply(self, record: SecurityRecord) -> None:
        """Take in one record; what is not there is removed without a word, as Kafka does it."""
        match record:
            case AccessControlEntryRecord():
                self._acls[record.id] = record
            case RemoveAccessControlEntryRecord():
                if record.id in self._acls:
                    del self._acls[record.id]
            case UserScramCredentialRecord():
                self._credentials(record.name, {**self._known(record.name), record.mechanism: record})
            case RemoveUserScramCredentialRecord():
                left = {key: kept for key, kept in self._known(record.name).items() if key != record.mechanism}
                self._credentials(record.name, left)
            case ClientQuotaRecord():
                self._set_quota(record)
            case DelegationTokenRecord():
                self._tokens[record.token_id] = record
            case RemoveDelegationTokenRecord():
                if record.token_id in self._tokens:
                    del self._tokens[record.token_id]

    def freeze(self) -> SecurityImage:
        """The image that all records so far lead to."""
        return SecurityImage(
            acls=self._acls.freeze(),
            scram=self._scram.freeze(),
            quotas=self._quotas.freeze(),
            tokens=self._tokens.freeze(),
        )

    def _known(self, user: str) -> Mapping[int, UserScramCredentialRecord]:
        return self._scram.get(user) or {}

    def _credentials(self, user: str, credentials: Mapping[int, UserScramCredentialRecord]) -> None:
        if credentials:
            self._scram[user] = MappingProxyType(dict(credentials))
        elif user in self._scram:
            del self._scram[user]

    def _set_quota(self, record: ClientQuotaRecord) -> None:
        name = quota_key(record.entity)
        before = self._quotas.get(name)
        values = {} if before is None else {key: value for key, value in before.values.items() if key != record.key}
        if not record.remove:
            values[record.key] = record.value
        if values:
            entity = record.entity if before is None else before.entity
            self._quotas[name] = QuotaImage(entity=entity, values=MappingProxyType(values))
        elif before is not None:
            del self._quotas[name]


def records_of_security(image: SecurityImage) -> Iterator[SecurityRecord]:
    """Records that lead from nothing to `image`."""
    yield from image.acls.values()
    for credentials in image.scram.values():
        yield from credentials.values()
    for quota in image.quotas.values():
        for key, value in quota.values.items():
            yield ClientQuotaRecord(entity=quota.entity, key=key, value=value)
    yield from image.tokens.values()
