"""Advertised addresses, where clients are told to connect

A client must be told an address that it can reach. `advertised.listeners` says so explicitly, per listener; without it
the address that the client has just connected to is one that works.
"""

from typing import NamedTuple

from tidemill.broker.dispatch import BrokerServices, RequestContext


class Endpoint(NamedTuple):
    """Where a broker can be reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


def own_endpoint(broker: BrokerServices, ctx: RequestContext) -> Endpoint:
    """This broker, as the client behind `ctx` can reach it."""
    advertised = broker.config.advertised.get(ctx.listener)
    rack = broker.config.broker_rack
    if advertised is not None:
        return Endpoint(broker.node_id, advertised.host, advertised.port or broker.port, rack)
    return Endpoint(broker.node_id, ctx.server_host or broker.host, ctx.server_port or broker.port, rack)
