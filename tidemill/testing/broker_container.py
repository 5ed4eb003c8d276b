"""A broker in a container: the image that is deployed, for tests

`TidemillContainer` is a testcontainers container (the extra `containers`): it starts the image, waits until the broker
serves, and is removed at the end. The in-process and child-process fixtures are faster; this one is what is deployed.

    from tidemill.testing import TidemillContainer

    with TidemillContainer() as broker:
        produce(bootstrap=broker.bootstrap_servers)

The broker is told its address before it starts, because it tells it to clients. So the port is chosen here and is the
same inside and outside; another is taken if somebody was faster.
"""

import re
from collections.abc import Mapping
from typing import Any, Self

from docker.errors import APIError
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from tidemill.core.environment import variable_of
from tidemill.free_ports import free_port

IMAGE = "localhost/tidemill-broker:latest"
READY = re.compile("tidemill broker ready")
START_TIMEOUT_S = 60
START_ATTEMPTS = 5  # another process may take the free port between our look and the engine's bind


class BrokerEnded(RuntimeError):
    """The broker ended before it was ready; the message is what it said."""


class TidemillContainer(DockerContainer):
    """One broker; `settings` are those of `server.properties`, `more` what testcontainers takes."""

    def __init__(self, image: str = IMAGE, *, settings: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(image, **more)
        self._settings = dict(settings or {})
        self._host = self.get_docker_client().host()
        self._port = 0
        self._choose_port()
        self.waiting_for(LogMessageWaitStrategy(READY).with_startup_timeout(START_TIMEOUT_S))

    @property
    def bootstrap_servers(self) -> str:
        """What a client is given, HOST:PORT; known once the container is started."""
        return f"{self._host}:{self._port}"

    def start(self) -> Self:
        """Start the broker and wait until it serves; raises BrokerEnded with what it said if it will not."""
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                return super().start()
            except APIError as error:
                if attempt == START_ATTEMPTS or not _taken(error):
                    raise
                self.get_wrapped_container().remove(force=True, v=True)
                self._choose_port()
            except RuntimeError as error:
                raise BrokerEnded(self._last_words() or str(error)) from error
        raise AssertionError("the last attempt returns or raises")

    def _choose_port(self) -> None:
        self.ports.pop(str(self._port), None)
        self._port = free_port()
        given = {
            "listeners": f"PLAINTEXT://:{self._port}",
            "advertised.listeners": f"PLAINTEXT://{self._host}:{self._port}",
            **self._settings,
        }
        self.with_envs(**{f"TIDEMILL_BROKER_{variable_of(name)}": value for name, value in given.items()})
        self.with_bind_ports(self._port, self._port)

    def _last_words(self) -> str:
        said = self.get_logs()[1].decode(errors="replace")
        return "; ".join(line for line in said.splitlines() if line.startswith("tidemill broker: "))


def _taken(error: APIError) -> bool:
    text = str(error)
    return "already in use" in text or "already allocated" in text
