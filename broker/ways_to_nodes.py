"""The ways to other nodes, encrypted where their listeners are

A node reaches the others by the listeners that all of them have: controllers by the first of
`controller.listener.names`, brokers by the listener for brokers. What such a listener says of TLS holds for whoever
connects to it too: what it shows is what this node shows there, and whom it trusts is whom this node trusts.
"""

from typing import TYPE_CHECKING

from tidemill.broker.config import BrokerConfig
from tidemill.broker.opening import StartRefused
from tidemill.broker.surroundings import Surroundings
from tidemill.core.runtime.net import Dialer

if TYPE_CHECKING:
    from tidemill.broker.quorum.grpc_tls import NodeTls
    from tidemill.broker.quorum.transport import Transport
    from tidemill.core.runtime.tls import ClientTls


class WaysToNodes:
    """Raises StartRefused where what the settings name cannot be used."""

    def __init__(self, config: BrokerConfig, around: Surroundings) -> None:
        self._around = around
        self.control = _control(config, around)
        self._brokers = _brokers(config)

    def transport(self) -> "Transport":
        """To the controllers, and for this one to be reached."""
        if self.control is None:
            return self._around.new_transport()
        self.control.watch.tell("certificate", now_s=self._around.clock.now_ms() / 1000)
        return self._around.new_tls_transport(self.control)

    def dialer(self) -> Dialer:
        """To the brokers."""
        if self._brokers is None:
            return self._around.new_dialer()
        return self._around.new_tls_dialer(self._brokers.context)


def _control(config: BrokerConfig, around: Surroundings) -> "NodeTls | None":
    spec = config.listening.control
    if spec is None or spec.tls is None:
        return None
    from tidemill.broker.quorum.grpc_tls import NodeTls  # nodes that encrypt nothing start without
    from tidemill.core.runtime.tls import TlsProblem

    try:
        return NodeTls(spec.name, spec.tls, around.clock, serves=bool(config.listening.controllers))
    except TlsProblem as problem:
        raise StartRefused(f"listener {spec.name} cannot speak TLS: {problem}") from None


def _brokers(config: BrokerConfig) -> "ClientTls | None":
    spec = config.listening.specs.get(config.listening.inter_broker)
    if spec is None or spec.tls is None:  # a controller that is no broker need not say how they are reached
        return None
    from tidemill.core.runtime.tls import ClientTls, TlsProblem

    try:
        return ClientTls(spec.tls)
    except TlsProblem as problem:
        raise StartRefused(f"listener {spec.name} cannot speak TLS: {problem}") from None
