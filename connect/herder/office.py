"""The leader's office: whoever is in it writes the config topic

The shell around `terms`. Whoever leads takes office by a session key under a new term; from then on it renews the key
when it is time to, writes over what a leader before it wrote too late, and everything it decides is decided in
`deciding` and goes through `append`, which says whether it counted. Every record of the config topic comes through
`take`, on leaders and others: what does not count arrives as if it were not understood, so the state of every worker is
made of the same records.

Who leads is not decided here: `leads` tells it, and may be wrong for a while without harm, which is the point of terms.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, Protocol

import structlog

from tidemill.connect.herder.terms import TERM_HEADER, Term, Terms
from tidemill.connect.session_key import KeySettings, why_new
from tidemill.connect.stores import ConfigRecord, KeyValue, SessionKey, decode_config, encode_config
from tidemill.connect.topic_log import Headers, LogRecord, TopicLogError
from tidemill.core.runtime.clock import Clock

log = structlog.get_logger("tidemill.connect.office")

TAKE_OFFICE_TIMEOUT_S: Final = 10.0
"""How long a write waits for a leader that has just been named to be in office."""

REPLACED: Final = "another worker has taken office meanwhile"

RIVALS_MAX: Final = 5
"""How often a term is claimed in a row before it is left to the next tick: somebody else claims it, too."""


class NotInOffice(Exception):
    """This worker may not write the config topic, and what it wanted to write has changed nothing."""


class ConfigTopic(Protocol):
    """What is needed of a topic; `topic_log.TopicLog` is the real one."""

    async def append(self, records: Sequence[KeyValue], headers: Headers = ()) -> Mapping[int, int]:
        """Write, and return the offsets when the records have been read back."""
        ...


class OfficeSettings(NamedTuple):
    """What an office works with."""

    life: str  # this start of this worker
    key: KeySettings
    leads: Callable[[], bool]
    clock: Clock
    afresh: bool = False  # others may lead in between that name no term: every time in office is a new one


class Office:
    """The office of one worker, whether it is in it or not."""

    def __init__(self, topic: ConfigTopic, writing: asyncio.Lock, settings: OfficeSettings) -> None:
        self.terms = Terms()
        self.key: SessionKey | None = None  # of the group, as the topic has it
        self._topic = topic
        self._writing = writing  # held by whoever decides something and writes it
        self._settings = settings
        self._term: Term | None = None
        self._deciding_in: Term | None = None  # what is decided under `_writing` was read in this one
        self._something_to_do = asyncio.Event()
        self._changed = asyncio.Condition()

    @property
    def is_taken(self) -> bool:
        """Whether this worker is in office."""
        return self._settings.leads() and self.terms.holds(self._term)

    def take(self, record: LogRecord) -> ConfigRecord | None:
        """Read a record of the config topic; None for one that is not understood or does not count."""
        term = Term.decoded(record.header(TERM_HEADER))
        if not self.terms.take(record.key, record.value, term, record.offset):
            log.warning(
                "left out what a leader wrote that is none any more",
                key=repr(record.key),
                offset=record.offset,
                term=term,
                in_office=self.terms.current,
            )
            self.look()
            return None
        decoded = decode_config(record.key, record.value)
        if isinstance(decoded, SessionKey):
            self.key = decoded
        return decoded

    def look(self) -> None:
        """Look whether there is something to do: to be called when who leads has changed, and with every tick."""
        if self._settings.afresh and not self._settings.leads():
            self._term = None
        self._something_to_do.set()

    async def keep(self) -> None:
        """Do what there is to do, for as long as the worker runs."""
        while True:
            await self._something_to_do.wait()
            self._something_to_do.clear()
            try:
                await self._attend()
            except TopicLogError as error:
                log.warning("the config topic cannot be written; trying again", reason=str(error))
            async with self._changed:
                self._changed.notify_all()

    async def _attend(self) -> None:
        for _ in range(RIVALS_MAX):
            if not self._settings.leads() or self.terms.holds(self._term) or not await self._take_office():
                break
        if not self.is_taken:
            return
        reason = why_new(self._settings.key, self.key, self._settings.clock.now_ms())
        if reason is not None:
            async with self._writing:  # or whoever confirms would write the one before behind it
                if not self.is_taken:
                    return
                await self._write([encode_config(self._new_key())])
            log.info("session key renewed", reason=reason)
        if self.terms.needs_repair:
            async with self._writing:
                if self.is_taken and (repairs := self.terms.repairs()):
                    await self._write(repairs)
                    log.warning("wrote over what did not count", records=len(repairs))

    async def _take_office(self) -> bool:
        """Claim a term with a session key: the one there is, if it is good, so that nobody has to learn another.

        False if there is no term left to claim.
        """
        now_ms = self._settings.clock.now_ms()
        good = self.key is not None and why_new(self._settings.key, self.key, now_ms) is None
        key = self.key if good and self.key is not None else self._new_key()
        before = self.terms.current
        self._term = self.terms.next(self._settings.life)
        if self._term is None:
            log.error(
                "nobody can take office: the config topic has a record whose header uses up all terms", term=before
            )
            return False
        await self._write([encode_config(key)])
        if self.terms.holds(self._term):
            log.info("leads the group", term=self._term.number, before=None if before is None else before.life)
        return True

    def _new_key(self) -> SessionKey:
        settings = self._settings.key
        now_ms = self._settings.clock.now_ms()
        return SessionKey(key=secrets.token_bytes(settings.size), algorithm=settings.algorithm, created_ms=now_ms)

    async def _write(self, records: Sequence[KeyValue]) -> Mapping[int, int]:
        assert self._term is not None
        return await self._topic.append(records, [(TERM_HEADER, self._term.encoded())])

    @asynccontextmanager
    async def deciding(self) -> AsyncIterator[None]:
        """Be in office and the only one here who writes: what is read inside is what the decision is appended to.

        The office is waited for first, and not with the lock of writers in hand: before it is taken, what the leader
        before wrote may still arrive, and taking it may need the lock.

        Raises NotInOffice if this worker does not lead, and TopicLogError if it is not in office in time.
        """
        await self._taken()
        async with self._writing:
            self._deciding_in = self._insist()
            yield

    async def append(self, records: Sequence[ConfigRecord]) -> None:
        """Write what was decided, inside `deciding`; returns when it is in force.

        Raises NotInOffice if this worker turns out to have been replaced before all of it was written, and
        TopicLogError as the topic does.
        """
        term = self._insist_still()
        if records:
            await self._write_counted(term, [encode_config(record) for record in records])

    async def confirm(self) -> None:
        """Find out, inside `deciding`, that nobody else can have decided anything until now.

        For what is written elsewhere than into the config topic, whose order alone tells who was in office when: to be
        called behind it. Raises as `append` does.
        """
        term = self._insist_still()
        assert self.key is not None  # it took office with one
        await self._write_counted(term, [encode_config(self.key)])

    async def _write_counted(self, term: Term, records: Sequence[KeyValue]) -> None:
        offsets = await self._write(records)
        if not self.terms.counted(term, max(offsets.values())):
            raise NotInOffice(REPLACED)

    async def _taken(self) -> None:
        if self.is_taken or not self._settings.leads():
            return
        self.look()
        try:
            async with asyncio.timeout(TAKE_OFFICE_TIMEOUT_S), self._changed:
                await self._changed.wait_for(lambda: self.is_taken or not self._settings.leads())
        except TimeoutError:
            raise TopicLogError("the config topic has not been written: this worker is not in office yet") from None

    def _insist(self) -> Term:
        if not self.is_taken or self._term is None:
            raise NotInOffice("this worker does not lead its group")
        return self._term

    def _insist_still(self) -> Term:
        """In office all the while: in a term that was lost and claimed again, another may have decided in between."""
        term = self._insist()
        if term != self._deciding_in:
            raise NotInOffice(REPLACED)
        return term
