"""Rules that forbid some things, and remember what was asked of them"""

from tidemill.broker.authorization import Requester, Resource, ResourceKind
from tidemill.broker.operations import Operation
from tidemill.broker.principals import Principal

Denied = tuple[Operation, Resource]


class DenySome:
    """Everything is allowed but what is listed; what somebody is denied on every topic is listed with the name *."""

    def __init__(self, *denied: Denied) -> None:
        self._denied = frozenset(denied)
        self.asked: set[tuple[Operation, ResourceKind]] = set()
        self.principals: set[Principal] = set()
        self.hosts: set[str] = set()
        self.listeners: set[str] = set()

    def allows(self, who: Requester, operation: Operation, resource: Resource) -> bool:
        self._note(who, operation, resource.kind)
        return (operation, resource) not in self._denied

    def allows_some(self, who: Requester, operation: Operation, kind: ResourceKind) -> bool:
        self._note(who, operation, kind)
        return (operation, Resource(kind, "*")) not in self._denied

    def _note(self, who: Requester, operation: Operation, kind: ResourceKind) -> None:
        self.asked.add((operation, kind))
        self.principals.add(who.principal)
        self.hosts.add(who.client_host)
        self.listeners.add(who.listener)
