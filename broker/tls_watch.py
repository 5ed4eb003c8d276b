"""The certificate of a listener: in use, and on the disk

Files of keys and certificates are replaced while a broker runs, once a year by hand or every day by a program. A change
is noticed by looking (`refresh`); a new context serves whoever connects from then on, and connections that
there are stay as they are. What cannot be used changes nothing: the certificate before stays, the log says once what is
wrong with the new file, and `stale` says so until another change is good.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

import structlog

from tidemill.core.runtime.tls import TlsContext, TlsProblem, file_stamps, server_context
from tidemill.core.security.certificate import Certificate
from tidemill.core.security.tls_settings import TlsSettings

log = structlog.get_logger("tidemill.broker.tls")

SOON_S: Final = 7 * 86_400
"""A certificate that ends within this time is warned of at the start."""


class ListenerTls:
    """What one listener shows; raises TlsProblem if there is nothing that it could show.

    `load` makes of the files what is used; it runs in a thread of its own where they have changed.
    """

    def __init__(
        self, listener: str, settings: TlsSettings, load: Callable[[TlsSettings], TlsContext] = server_context
    ) -> None:
        self.listener = listener
        self.stale: str | None = None  # why the files are not what is in use
        self.reloads = 0
        self.reload_failures = 0
        self._settings = settings
        self._stamps = file_stamps(settings.files)
        self._load = load
        self._used = load(settings)

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._used.context

    @property
    def shows_any(self) -> bool:
        """Whether there is a certificate at all; only who is a client may be without."""
        return self._used.certificate is not None

    @property
    def certificate(self) -> Certificate:
        """The one in use."""
        assert self._used.certificate is not None, "no listener is without one"
        return self._used.certificate

    async def refresh(self) -> None:
        """Take what is in the files if they have changed; never raises."""
        files = self._settings.files
        stamps = await asyncio.to_thread(file_stamps, files)  # a file system may take its time
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._used = await asyncio.to_thread(self._load, self._settings)
        except TlsProblem as problem:
            self.stale = str(problem)
            self.reload_failures += 1
            log.error("new certificate cannot be used; the one before stays", listener=self.listener, reason=self.stale)
            return
        self.stale = None
        self.reloads += 1
        self.tell("certificate changed", now_s=None)

    def tell(self, event: str, now_s: float | None) -> None:
        """One line about the certificate in use; a warning if `now_s` is given and its end is near."""
        found = self._used.certificate
        if found is None:  # of a client that shows none
            log.info(event, listener=self.listener)
            return
        facts = {"listener": self.listener, "subject": found.subject, "valid_until_s": found.not_after_s}
        if now_s is None or now_s < found.not_after_s - SOON_S:
            log.info(event, **facts)
        elif now_s < found.not_after_s:
            log.warning(event, **facts, reason="it ends within a week: renew it")
        else:
            log.warning(event, **facts, reason="it has expired and clients will refuse it: renew it")
