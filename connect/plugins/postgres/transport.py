"""The replication connection and the thread that owns it

A logical replication stream is a conversation: the server sends frames, we say now and then how far we got, and
whoever is silent for `wal_sender_timeout` is thrown out. So one thread does nothing but talk: it drains libpq, puts
frames into a queue bounded in bytes, and answers. When the queue is full it stops reading, never answering.

The loop is greedy: it takes every frame libpq has, asks the socket again without waiting, and only then waits. With
TLS, libpq may hold decrypted data while the socket is silent.

A server that shuts down waits until all it sent is confirmed, and asks again and again. We may not confirm what is not
stored yet, so after a number of such questions with nothing new in between the thread hangs up: the server stops at
once and the WAL stays.

A network that swallows everything looks like a server with nothing to say. So after some seconds of silence the server
is asked for a sign, and again and again; `silent_s` says how long it has given none. After twice `wal_sender_timeout`,
the time after which the server itself would give up a silent client, the thread hangs up. A server that decodes a
large transaction may be silent for a while too, so it is not given up sooner.

Errors of the thread are raised by `frames`, after the frames that came before them.
"""

import os
import select
import threading
from collections import deque
from struct import Struct
from typing import Any, Final

import psycopg
import structlog
from psycopg import errors, pq, sql

from tidemill.connect.api import Fatal, NotConnected
from tidemill.connect.plugins.postgres.config import PostgresConfig
from tidemill.connect.plugins.postgres.connection import connect, translate
from tidemill.connect.plugins.postgres.lsn import format_lsn
from tidemill.connect.plugins.postgres.pgoutput import POSTGRES_EPOCH_US
from tidemill.core.runtime.clock import Clock

log = structlog.get_logger("tidemill.connect.postgres")

QUEUE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Read ahead of the producer; a quarter of a second of a fast walsender."""

CHUNK_FRAMES_MAX: Final = 512
"""Frames handed over at once: about two milliseconds of decoding, so that a waiting reader is not kept waiting."""

CHUNK_BYTES_MAX: Final = 1024 * 1024
"""Bytes handed over at once; one large row may exceed it."""

URGENT_QUESTIONS_MAX: Final = 50
"""Requests for an answer in a row, with the log not growing, after which the server is taken to be shutting down."""

QUESTION_AFTER_S: Final = 2.0
"""Silence after which the server is asked for a sign, and asked again."""

SENDER_TIMEOUTS_MAX: Final = 2
"""Times `wal_sender_timeout` that the server may be silent."""

PREREQUISITE_STATE: Final = "55000"

LEAVE_TIMEOUT_S: Final = 2.0
"""How long the server may take to end its side; it first sends what it has in hand."""

JOIN_TIMEOUT_S: Final = 10.0

_STATUS = Struct("!cQQQqB")
_KEEPALIVE = Struct("!cQqB")


class ReplicationStream:
    """Frames from a slot, from a position on."""

    def __init__(self, config: PostgresConfig, clock: Clock, *, lsn: int) -> None:
        self._config = config
        self._clock = clock
        self._confirmed = lsn
        self._received = lsn
        self._queue: deque[tuple[list[bytes], int]] = deque()
        self._queued_bytes = 0
        self._bytes_max = config.max_queue_bytes or QUEUE_BYTES_MAX
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._fault: Fatal | None = None  # what a notice of the server means
        self._closing = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._status_due_s = 0.0
        self._heard_s = clock.monotonic()
        self._asked_s = self._heard_s
        self._silence_s_max: float | None = None
        self._questions = 0
        self._question_at = 0
        self._connection: psycopg.Connection[Any] | None = None
        self._thread: threading.Thread | None = None

    @property
    def received(self) -> int:
        """The highest position seen."""
        return self._received

    @property
    def pending(self) -> bool:
        """Whether frames can be had without waiting."""
        return bool(self._queue)

    @property
    def queued_bytes(self) -> int:
        """Bytes read and not yet taken."""
        return self._queued_bytes

    @property
    def silent_s(self) -> float:
        """How long the server has given no sign of life, though it is asked for one every few seconds."""
        return max(0.0, self._clock.monotonic() - self._heard_s) if self._thread is not None else 0.0

    def start(self) -> None:
        """Connect and start streaming; raises plugin errors, and psycopg's ObjectInUse while somebody has the slot."""
        connection = connect(self._config, replication="database")
        self._connection = connection
        connection.add_notice_handler(self._notice)
        try:
            row = connection.execute(
                "SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'"
            ).fetchone()
            timeout_ms = 0 if row is None else row[0]
            self._silence_s_max = SENDER_TIMEOUTS_MAX * timeout_ms / 1000 if timeout_ms else None
            result = connection.execute(self._command()).pgresult
        except errors.ObjectInUse:
            raise
        except psycopg.Error as error:
            raise translate(error, self._config) from error
        if result is None or result.status != pq.ExecStatus.COPY_BOTH:
            raise NotConnected(f"the server did not start streaming from slot {self._config.slot_name}")
        self._heard_s = self._asked_s = self._clock.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"replication {self._config.slot_name}", daemon=True)
        self._thread.start()

    def frames(self, timeout_s: float) -> list[bytes]:
        """Return the next frames, an empty list after `timeout_s` without any; raises what ended the stream."""
        with self._changed:
            if not self._queue and self._error is None:
                self._changed.wait(timeout_s)
            if self._queue:
                frames, size = self._queue.popleft()
                was_full = self._queued_bytes >= self._bytes_max
                self._queued_bytes -= size
                if was_full and self._queued_bytes < self._bytes_max:
                    self._wake()
                return frames
            if self._error is not None:
                raise self._error
        return []

    def confirm(self, lsn: int) -> None:
        """Let the server forget everything before `lsn`; it hears of it with the next status update."""
        self._confirmed = max(self._confirmed, lsn)

    def close(self) -> None:
        """Confirm what may be confirmed, leave the stream and end the thread; more than once does no harm."""
        if self._closing:
            return
        self._closing = True
        self._wake()
        if self._thread is not None:
            self._thread.join(JOIN_TIMEOUT_S)
            if self._thread.is_alive():
                log.warning("the replication thread did not end in time", timeout_s=JOIN_TIMEOUT_S)
                return
        if self._connection is not None:
            self._connection.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _command(self) -> sql.Composed:
        options = [sql.SQL("proto_version '1'"), sql.SQL("publication_names {}").format(self._publication())]
        return sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({})").format(
            sql.Identifier(self._config.slot_name),
            sql.SQL(format_lsn(self._confirmed)),  # two hexadecimal numbers
            sql.SQL(", ").join(options),
        )

    def _notice(self, notice: errors.Diagnostic) -> None:
        """Since PostgreSQL 18 a publication that is gone is a warning, and its changes are silently left out."""
        text = notice.message_primary or ""
        if notice.sqlstate == PREREQUISITE_STATE and self._config.publication_name in text:
            self._fault = Fatal(
                f"{self._config.hostname}:{self._config.port}: {text}; changes made without it are lost to this "
                f"connector: make the publication {self._config.publication_name} again, delete the connector's "
                "offsets and let it take a new snapshot."
            )
        else:
            log.warning("notice from the server", slot=self._config.slot_name, text=text)

    def _publication(self) -> sql.Composable:
        """The option holds a list of identifiers in a string: quoted twice."""
        quoted = '"' + self._config.publication_name.replace('"', '""') + '"'
        return sql.Literal(quoted)

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"x")
        except BlockingIOError:
            log.debug("the replication thread has been woken many times already")

    # ------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            self._talk()
        except psycopg.Error as error:
            self._fail(translate(error, self._config))
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _talk(self) -> None:
        assert self._connection is not None
        pgconn = self._connection.pgconn
        while not self._closing:
            if self._fault is not None:
                raise self._fault
            now_s = self._clock.monotonic()
            if now_s >= self._status_due_s:
                self._send_status(pgconn)
                self._status_due_s = now_s + self._config.status_interval_ms / 1000
            if self._queued_bytes >= self._bytes_max:
                self._heard_s = now_s  # it is we who do not listen
                self._wait([], self._status_due_s - now_s)
                continue
            if self._drain(pgconn):
                self._heard_s = now_s
                continue
            pgconn.consume_input()
            if self._drain(pgconn):
                self._heard_s = now_s
                continue
            self._ask_if_silent(pgconn, now_s)
            due_s = min(self._status_due_s, max(self._heard_s, self._asked_s) + QUESTION_AFTER_S)
            self._wait([pgconn.socket], due_s - now_s)
            pgconn.consume_input()
        self._send_status(pgconn)
        self._leave(pgconn)

    def _ask_if_silent(self, pgconn: pq.abc.PGconn, now_s: float) -> None:
        silent_s = now_s - self._heard_s
        if self._silence_s_max is not None and silent_s > self._silence_s_max:
            raise NotConnected(f"{self._config.hostname}:{self._config.port} has given no sign for {silent_s:.0f} s")
        if silent_s >= QUESTION_AFTER_S and now_s - self._asked_s >= QUESTION_AFTER_S:
            self._asked_s = now_s
            self._send_status(pgconn, ask=True)

    def _drain(self, pgconn: pq.abc.PGconn) -> int:
        """Take what libpq holds, up to a chunk; returns how many frames that were."""
        frames: list[bytes] = []
        size = 0
        answer = False
        take, keep, keepalive = pgconn.get_copy_data, frames.append, _KEEPALIVE.size
        while len(frames) < CHUNK_FRAMES_MAX and size < CHUNK_BYTES_MAX:
            count, data = take(1)
            if count > keepalive:
                keep(bytes(data))
                size += count
                continue
            if count == 0:
                break
            if count < 0:
                self._hand_over(frames, size)
                raise self._ending(pgconn.get_result())
            frame = bytes(data)
            keep(frame)
            size += count
            if frame[0] == 107 and count == keepalive:  # it may want an answer
                _, wal_end, _, urgent = _KEEPALIVE.unpack(frame)
                self._received = max(self._received, wal_end)
                answer = answer or bool(urgent)
                self._count_question(wal_end, urgent)
        if frames:
            self._note_position(frames)
        self._hand_over(frames, size)
        if answer:
            self._send_status(pgconn)
        return len(frames)

    def _ending(self, result: pq.abc.PGresult | None) -> Exception:
        """Return what the end of the stream means; the server may have said why."""
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return errors.error_from_result(result)
        return NotConnected(f"the server ended the stream of slot {self._config.slot_name}")

    def _note_position(self, frames: list[bytes]) -> None:
        for frame in reversed(frames):
            if frame[0] == 119:
                self._received = max(self._received, int.from_bytes(frame[1:9], "big"))
                self._questions = 0
                break

    def _count_question(self, wal_end: int, urgent: int) -> None:
        if not urgent or wal_end != self._question_at:
            self._questions = 0
        self._questions += urgent
        self._question_at = wal_end
        if self._questions > URGENT_QUESTIONS_MAX:
            raise NotConnected(f"{self._config.hostname}:{self._config.port} is shutting down")

    def _hand_over(self, frames: list[bytes], size: int) -> None:
        if frames:
            with self._changed:
                self._queue.append((frames, size))
                self._queued_bytes += size
                self._changed.notify()

    def _send_status(self, pgconn: pq.abc.PGconn, *, ask: bool = False) -> None:
        now_us = self._clock.now_ms() * 1000 - POSTGRES_EPOCH_US
        confirmed = self._confirmed
        status = _STATUS.pack(b"r", max(self._received, confirmed), confirmed, confirmed, now_us, ask)
        while pgconn.put_copy_data(status) == 0:
            self._flush(pgconn)
        self._flush(pgconn)

    def _flush(self, pgconn: pq.abc.PGconn) -> None:
        """Send all of it; the server may be waiting for us to read before it reads."""
        while pgconn.flush() == 1:
            select.select([pgconn.socket], [pgconn.socket], [], 1.0)
            pgconn.consume_input()

    def _wait(self, readers: list[int], timeout_s: float) -> None:
        ready, _, _ = select.select([*readers, self._wake_read], [], [], max(timeout_s, 0.0))
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)

    def _leave(self, pgconn: pq.abc.PGconn) -> None:
        """End the copy in an orderly way and wait for the server to do so too: then the slot is free."""
        pgconn.put_copy_end()
        self._flush(pgconn)
        deadline_s = self._clock.monotonic() + LEAVE_TIMEOUT_S
        copying = True
        while (left_s := deadline_s - self._clock.monotonic()) > 0:
            if copying:
                count, _ = pgconn.get_copy_data(1)
                copying = count >= 0
                if count != 0:
                    continue
            elif not pgconn.is_busy() and pgconn.get_result() is None:
                return  # the server has let go of the slot
            elif not pgconn.is_busy():
                continue
            select.select([pgconn.socket], [], [], left_s)
            pgconn.consume_input()
