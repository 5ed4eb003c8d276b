"""Advertised addresses, where clients are told to connect

A client must be told an address that it can reach, and the same one by every broker: a certificate is about a name, and
a client that checks it has to be sent there by that name. So `advertised.listeners` says it, else `listeners`, as in
Kafka. Where that is every interface of the machine it says nothing: there a listener that speaks TLS has the full name
of the machine, as in Kafka, and any other one the address that the client has just connected to, which works; a node
with others refuses to start like that. Other brokers are told as they have registered,
under the listener that the client came by: one that does not have it is not there for this client, nor is one that is
fenced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tidemill.broker.config import BrokerConfig
from tidemill.broker.dispatch import BrokerServices, Peer, RequestContext
from tidemill.broker.listeners import ListenAddress
from tidemill.broker.quorum.image import BrokerImage, PartitionImage
from tidemill.broker.quorum.records import BrokerEndpoint
from tidemill.core.error_code import ErrorCode


class Endpoint(NamedTuple):
    """Where a broker can be reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


def end_points_of(config: BrokerConfig, bound: Sequence[int] = ()) -> tuple[BrokerEndpoint, ...]:
    """What a broker registers; `bound` are the ports that its listeners have, once they are open."""
    found = []
    for index, address in enumerate(config.listen):
        told = config.listening.told(address.name) or address
        port = told.port or (bound[index] if bound else address.port)
        number = config.listening.specs[address.name].protocol.value
        found.append(BrokerEndpoint(name=address.name, host=told.host, port=port, security_protocol=number))
    return tuple(found)


def nameless(config: BrokerConfig) -> tuple[ListenAddress, ...]:
    """The listeners that speak TLS and say no name that a certificate could be about."""
    listening = config.listening
    encrypted = [each for each in listening.listen if listening.specs[each.name].protocol.has_tls]
    return tuple(each for each in encrypted if each.is_anywhere and each.name not in listening.advertised)


def named(config: BrokerConfig, host: str) -> BrokerConfig:
    """The same with `host` for those that say none."""
    named_so = {each.name: ListenAddress(each.name, host, 0) for each in nameless(config)}
    return replace(config, listening=replace(config.listening, advertised={**config.advertised, **named_so}))


def own_endpoint(broker: BrokerServices, ctx: RequestContext | Peer) -> Endpoint:
    """This broker, as the client behind `ctx` can reach it."""
    told = broker.config.listening.told(ctx.listener)
    host = ctx.server_host or broker.host if told is None or told.is_anywhere else told.host
    port = (told and told.port) or ctx.server_port or broker.port
    return Endpoint(broker.node_id, host, port, broker.config.broker_rack)


def endpoint_of(broker: BrokerServices, ctx: RequestContext | Peer, registered: BrokerImage) -> Endpoint | None:
    """A registered broker, fenced or not, as the client behind `ctx` can reach it; None where it cannot."""
    if registered.node_id == broker.node_id:
        return own_endpoint(broker, ctx)
    for address in registered.end_points:
        if address.name == ctx.listener:
            return Endpoint(registered.node_id, address.host, address.port, registered.rack)
    return None


def reachable(broker: BrokerServices, ctx: RequestContext) -> dict[int, Endpoint]:
    """Every broker that the client behind `ctx` may turn to, by its id, in order."""
    found: dict[int, Endpoint] = {}
    for node_id, registered in sorted(broker.controller.image.brokers.items()):
        if not registered.fenced and (endpoint := endpoint_of(broker, ctx, registered)) is not None:
            found[node_id] = endpoint
    return found


def controller_id(broker: BrokerServices, endpoints: Mapping[int, Endpoint]) -> int:
    """Whom clients send what is for the controller: as any broker takes it, this one if it may be named; -1 is nobody.

    See KIP-590.
    """
    return broker.node_id if broker.node_id in endpoints else min(endpoints, default=-1)


def offline(endpoints: Mapping[int, Endpoint], partition: PartitionImage) -> tuple[int, ...]:
    """The replicas of a partition that the client cannot turn to."""
    return tuple(replica for replica in partition.replicas if replica not in endpoints)


def leader_of(
    broker: BrokerServices, endpoints: Mapping[int, Endpoint], partition: PartitionImage
) -> tuple[int, ErrorCode]:
    """The leader that a client is told and what is wrong with it: -1 is none that it can reach, as Kafka has it."""
    if broker.misses(partition.leader):
        return -1, ErrorCode.LEADER_NOT_AVAILABLE
    if partition.leader in endpoints:
        return partition.leader, ErrorCode.NONE
    registered = broker.controller.image.brokers.get(partition.leader)
    if registered is None or registered.fenced:
        return -1, ErrorCode.LEADER_NOT_AVAILABLE
    return -1, ErrorCode.LISTENER_NOT_FOUND
