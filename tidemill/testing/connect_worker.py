"""A Connect worker for tests, with what a test asks of it

A connector is created over REST as in production, and `wait_running` returns once it and all its tasks run, or says
why they do not: the trace of what failed, or the end of the worker's log. What the worker refuses is raised as
`RestFailure` with the sentence a user would read.
"""

import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from tidemill.rest_client import RestClient, RestFailure
from tidemill.services import Service

WAIT_S = 60.0  # a test machine may be busy
POLL_S = 0.05


class ConnectorFailed(RuntimeError):
    """The connector or one of its tasks is FAILED; the message is its trace."""


class ConnectWorker:
    """A running worker."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.url = service.facts["url"]
        self._client = RestClient(self.url)

    def create(self, name: str, config: Mapping[str, Any]) -> None:
        """Create a connector; raises RestFailure with what is wrong with the configuration."""
        self._client.ask("POST", "connectors", body={"name": name, "config": dict(config)})

    def status(self, name: str) -> dict[str, Any]:
        """The answer of `GET /connectors/NAME/status`."""
        found: dict[str, Any] = self._client.ask("GET", "connectors", name, "status")
        return found

    def wait_running(self, name: str, timeout_s: float = WAIT_S) -> None:
        """Return once the connector and its tasks run; raises ConnectorFailed, or TimeoutError with what there is."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self._found(name)
            parts = [found["connector"], *found["tasks"]] if found else []
            for part in parts:
                if part["state"] == "FAILED":
                    raise ConnectorFailed(f"{name}: {part.get('trace', 'it does not say why')}")
            if len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts):
                return
            self._wait(deadline, f"{name} does not run after {timeout_s:g} s: {found or 'no status yet'}")

    def delete(self, name: str, timeout_s: float = WAIT_S) -> None:
        """Delete a connector and wait until nothing is known of it; one that is not there is deleted already."""
        try:
            self._client.ask("DELETE", "connectors", name)
        except RestFailure as failure:
            if failure.status != HTTPStatus.NOT_FOUND:
                raise
        deadline = time.monotonic() + timeout_s
        while (found := self._found(name)) is not None:
            self._wait(deadline, f"{name} is not gone after {timeout_s:g} s: {found}")

    def _found(self, name: str) -> dict[str, Any] | None:
        try:
            return self.status(name)
        except RestFailure as failure:
            if failure.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def _wait(self, deadline: float, otherwise: str) -> None:
        if not self.service.running or time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise}\n{self.service.tail()}")
        time.sleep(POLL_S)
