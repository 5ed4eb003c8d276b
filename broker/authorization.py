"""Authorization: who may do what to which resource

Operations and resources are those of Kafka's access control lists. Every route names its `Need`s. A need about one
resource of the whole request is looked at before the handler is called; one about each of many resources (the topics of
a Produce request) by whoever looks them up, in all ways that a request may take, and refused in the row of that
resource. Nobody learns that a topic exists without DESCRIBE on it: the refusal of a name is the same either way.

An authorizer is a value: it says the same whenever it is asked the same. When the rules change the broker has another
one, so that what was allowed by one authorizer may be remembered for as long as the broker has that one.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from tidemill.broker.operations import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS, Operation
from tidemill.broker.principals import Principal
from tidemill.core.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)


class ResourceKind(enum.IntEnum):
    """What there can be rules about, with the protocol's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    """One thing that there can be rules about."""

    kind: ResourceKind
    name: str


THE_CLUSTER: Final = Resource(ResourceKind.CLUSTER, "kafka-cluster")


def topic_named(name: str) -> Resource:
    """A topic, whether it exists or not."""
    return Resource(ResourceKind.TOPIC, name)


def group_named(group_id: str) -> Resource:
    """A group, whether it exists or not."""
    return Resource(ResourceKind.GROUP, group_id)


class Requester(Protocol):
    """Whoever asks, as far as rules may be about them."""

    @property
    def principal(self) -> Principal:
        """Who it is."""

    @property
    def client_host(self) -> str:
        """Where it connects from."""

    @property
    def listener(self) -> str:
        """The listener that it came by."""


class Authorizer(Protocol):
    """The rules. What an operation implies (who may READ may DESCRIBE) is part of them."""

    def allows(self, who: Requester, operation: Operation, resource: Resource) -> bool:
        """Whether `who` may do that."""

    def allows_some(self, who: Requester, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there can be a resource of that kind to which `who` may do that."""


class AllowAll:
    """No rules, as Kafka without an authorizer."""

    def allows(self, _who: Requester, _operation: Operation, _resource: Resource) -> bool:
        """Yes."""
        return True

    def allows_some(self, _who: Requester, _operation: Operation, _kind: ResourceKind) -> bool:
        """Yes."""
        return True


ALLOW_ALL: Final = AllowAll()
"""The only one of its kind: where requests are many, a comparison with it is all that authorization costs."""

_REFUSALS: Final[Mapping[ResourceKind, type[KafkaError]]] = {
    ResourceKind.TOPIC: TopicAuthorizationFailed,
    ResourceKind.GROUP: GroupAuthorizationFailed,
    ResourceKind.CLUSTER: ClusterAuthorizationFailed,
    ResourceKind.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}
_OPERATIONS: Final[Mapping[ResourceKind, int]] = {
    ResourceKind.TOPIC: TOPIC_OPERATIONS,
    ResourceKind.GROUP: GROUP_OPERATIONS,
    ResourceKind.CLUSTER: CLUSTER_OPERATIONS,
}


def permit(authorizer: Authorizer, who: Requester, operation: Operation, resource: Resource) -> None:
    """Return if `who` may do that; raises the authorization error of that kind of resource.

    The error does not name it: a client that knows the id of a topic need not know its name.
    """
    if not authorizer.allows(who, operation, resource):
        kind = resource.kind.name.lower().replace("_", " ")
        raise _REFUSALS[resource.kind](f"{who.principal} has no {operation.name} on this {kind}")


def authorized_operations(authorizer: Authorizer, who: Requester, resource: Resource) -> int:
    """The operations that `who` may do, as the bits that answers carry."""
    every = _OPERATIONS[resource.kind]
    if authorizer is ALLOW_ALL:
        return every
    return sum(
        1 << operation
        for operation in Operation
        if every >> operation & 1 and authorizer.allows(who, operation, resource)
    )


def cluster_operations(authorizer: Authorizer, who: Requester) -> int:
    """The same of the cluster: none for those who may not DESCRIBE it."""
    may_know = authorizer.allows(who, Operation.DESCRIBE, THE_CLUSTER)
    return authorized_operations(authorizer, who, THE_CLUSTER) if may_know else 0


@dataclass(frozen=True, slots=True)
class Need:
    """What the requests of one API take: an operation on a kind of resource.

    Where `of` names the one resource of a whole request, that is refused as a whole; otherwise the handler asks for
    each resource.
    """

    operation: Operation
    kind: ResourceKind
    of: Callable[[Any], str] | None = None

    def check(self, authorizer: Authorizer, who: Requester, request: Any) -> None:
        """Raises the authorization error of the request's one resource, if it has one and `who` may not do that."""
        if self.of is not None:
            permit(authorizer, who, self.operation, Resource(self.kind, self.of(request)))


def on_the_cluster(operation: Operation) -> Need:
    """An operation on the cluster, without which nothing of the request is served."""
    return Need(operation, ResourceKind.CLUSTER, _the_cluster)


def on_the_group(operation: Operation) -> Need:
    """An operation on the group that the request is about."""
    return Need(operation, ResourceKind.GROUP, attrgetter("group_id"))


def on_each(operation: Operation, kind: ResourceKind) -> Need:
    """An operation on each resource that the request names or the answer would show."""
    return Need(operation, kind)


def _the_cluster(_request: Any) -> str:
    return THE_CLUSTER.name
