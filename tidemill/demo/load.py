"""The demo's business: an order table and the people who change it

Inserts, updates (also of the primary key) and deletes, in transactions of a few statements, some of them rolled back,
from a seed: two runs with one seed issue the same statements. The columns cover what a plain business table uses, so
that the final comparison means something.
"""

import random
import threading
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

TABLE = "public.orders"

CREATE = """
CREATE TABLE public.orders (
    id          bigserial PRIMARY KEY,
    customer    text NOT NULL,
    quantity    integer NOT NULL,
    amount      numeric(12, 2) NOT NULL,
    rating      double precision,
    paid        boolean NOT NULL DEFAULT false,
    placed_at   timestamptz NOT NULL,
    changed_at  timestamp NOT NULL,
    ship_on     date,
    reference   uuid NOT NULL,
    details     jsonb NOT NULL,
    tags        text[] NOT NULL DEFAULT '{}',
    signature   bytea
)
"""

INSERT = """
INSERT INTO public.orders
    (customer, quantity, amount, rating, paid, placed_at, changed_at, ship_on, reference, details, tags, signature)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""

SHARES = {"insert": 0.45, "update": 0.35, "delete": 0.15, "rekey": 0.03, "rollback": 0.02}
"""How often each kind of transaction is made; they add up to 1."""

STATEMENTS_PER_TRANSACTION = 10
NAMES = ("Ada", "Bo", "Chidi", "Dörte", "Eun-ji", "Félix", "Grünwald & Söhne", "日本商店", "O'Hara")
TAGS = ("new", "gift", "fragile", 'with "quotes"', "a,b", "{braces}", "")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Progress:
    """What the load has done so far; read by the progress display while the load's thread writes it."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    transactions: int = 0

    @property
    def changes(self) -> int:
        """Committed row changes."""
        return self.inserted + self.updated + self.deleted


class Load:
    """Writes to the order table until it is told to stop or its number of changes is reached."""

    def __init__(self, dsn: str, *, seed: int = 1) -> None:
        self.progress = Progress()
        self._dsn = dsn
        self._random = random.Random(seed)
        self._rate_per_s: float | None = None
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def create_table(self, rows: int) -> None:
        """Create the table with `rows` rows in it: what the initial snapshot has to carry over."""
        with psycopg.connect(self._dsn) as connection:
            connection.execute(CREATE)
            with connection.cursor() as cursor:
                cursor.executemany(INSERT, [self._row() for _ in range(rows)])

    def pace(self, rate_per_s: float | None) -> None:
        """Make at most this many changes per second; None is as fast as the database goes."""
        self._rate_per_s = rate_per_s

    def start(self, changes: int | None = None) -> "Load":
        """Begin in a thread of its own; without `changes` it goes on until `stop`."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._guard, args=(changes,), name="demo-load", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> Progress:
        """Finish the transaction at hand and return what was done; raises what went wrong in the load's thread."""
        self._stop.set()
        return self.wait()

    def wait(self) -> Progress:
        """Wait for the requested number of changes; raises what went wrong in the load's thread."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self.progress

    @property
    def running(self) -> bool:
        """True while the load's thread works."""
        return self._thread is not None and self._thread.is_alive()

    def _guard(self, changes: int | None) -> None:
        try:
            self._run(changes)
        except BaseException as error:
            self._error = error

    def _run(self, changes: int | None) -> None:
        begin, first = time.monotonic(), self.progress.changes
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._stop.is_set() and (changes is None or self.progress.changes - first < changes):
                self._transaction(connection)
                if self._rate_per_s:
                    ahead = (self.progress.changes - first) / self._rate_per_s - (time.monotonic() - begin)
                    self._stop.wait(max(0.0, ahead))

    def _transaction(self, connection: psycopg.Connection) -> None:
        kind = self._random.choices(list(SHARES), list(SHARES.values()))[0]
        with connection.transaction() as transaction, connection.cursor() as cursor:
            counts = getattr(self, f"_{kind}")(cursor)
            if kind == "rollback":
                raise psycopg.Rollback(transaction)
        inserted, updated, deleted = (0, 0, 0) if kind == "rollback" else counts
        self.progress.inserted += inserted
        self.progress.updated += updated
        self.progress.deleted += deleted
        self.progress.transactions += 1

    def _insert(self, cursor: psycopg.Cursor) -> tuple[int, int, int]:
        cursor.executemany(INSERT, [self._row() for _ in range(STATEMENTS_PER_TRANSACTION)])
        return STATEMENTS_PER_TRANSACTION, 0, 0

    def _rollback(self, cursor: psycopg.Cursor) -> tuple[int, int, int]:
        return self._insert(cursor)

    def _some_ids(self, cursor: psycopg.Cursor, count: int) -> list[int]:
        highest = cursor.execute("SELECT coalesce(max(id), 0) FROM public.orders").fetchone()
        low = self._random.randint(0, max(0, (highest[0] if highest else 0) - count))
        query = "SELECT id FROM public.orders WHERE id >= %s ORDER BY id LIMIT %s"
        return [row[0] for row in cursor.execute(query, (low, count)).fetchall()]

    def _update(self, cursor: psycopg.Cursor) -> tuple[int, int, int]:
        ids = self._some_ids(cursor, STATEMENTS_PER_TRANSACTION)
        statement = (
            "UPDATE public.orders SET quantity = %s, amount = %s, rating = %s, paid = NOT paid, changed_at = %s, "
            "details = details || %s, tags = %s WHERE id = %s"
        )
        rows = [
            (
                *self._numbers(),
                self._moment().replace(tzinfo=None),
                Jsonb({"seen": self._random.randint(1, 9)}),
                self._tags(),
                i,
            )
            for i in ids
        ]
        cursor.executemany(statement, rows)
        return 0, len(ids), 0

    def _delete(self, cursor: psycopg.Cursor) -> tuple[int, int, int]:
        ids = self._some_ids(cursor, STATEMENTS_PER_TRANSACTION)
        cursor.execute("DELETE FROM public.orders WHERE id = ANY(%s)", (ids,))
        return 0, 0, len(ids)

    def _rekey(self, cursor: psycopg.Cursor) -> tuple[int, int, int]:
        ids = self._some_ids(cursor, 1)
        for old in ids:
            cursor.execute("UPDATE public.orders SET id = nextval('public.orders_id_seq') WHERE id = %s", (old,))
        return 0, len(ids), 0

    def _numbers(self) -> tuple[int, Decimal, float | None]:
        rating = None if self._random.random() < 0.2 else round(self._random.uniform(0, 5), 3)
        return self._random.randint(1, 99), Decimal(self._random.randint(-99_999, 9_999_999)) / 100, rating

    def _moment(self) -> datetime:
        return EPOCH + timedelta(microseconds=self._random.randrange(300 * 86_400 * 1_000_000))

    def _tags(self) -> list[str]:
        return self._random.sample(TAGS, self._random.randint(0, 3))

    def _row(self) -> tuple[object, ...]:
        placed = self._moment()
        return (
            self._random.choice(NAMES),
            *self._numbers(),
            self._random.random() < 0.5,
            placed,
            placed.replace(tzinfo=None),
            None if self._random.random() < 0.3 else date(2026, 1, 1) + timedelta(days=self._random.randint(0, 600)),
            UUID(int=self._random.getrandbits(128)),
            Jsonb(
                {"channel": self._random.choice(["web", "shop"]), "items": [self._random.randint(1, 5)], "note": None}
            ),
            self._tags(),
            None if self._random.random() < 0.5 else self._random.randbytes(12),
        )
