"""ExtractNewRecordState on captured changes: rows per CPU-second up to the bytes that are produced

Batches as the capture of a table of four columns makes them, in this process and without a broker: as a whole, record
by record where a predicate stands before it, and read where an option looks into rows. CPU is that of this process.

`python -m benchmarks.unwrap [ROUNDS]`
"""

import statistics
import sys
import time
from collections.abc import Callable

from benchmarks.measure import emit
from tidemill.connect.api import EncodedBatch
from tidemill.connect.converters.json import JsonConverter
from tidemill.connect.plugins.postgres.envelope import Envelope, Format, Moment
from tidemill.connect.plugins.postgres.selection import Selection
from tidemill.connect.plugins.postgres.table import CatalogColumn, CatalogTable, Shaper, relation_of
from tidemill.connect.plugins.postgres.types.conversion import Modes
from tidemill.connect.plugins.postgres.types.resolve import TypeCatalog
from tidemill.connect.tasks.chained import chain_of, records_of, unless_encoded

ROWS = 1_000
REPEATS = 20
UNWRAP = {"transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"}
PREDICATE = {
    "transforms.u.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "TopicNameMatches",
    "predicates.p.pattern": "t\\..*",
}
CASES = {
    "row": {},
    "row_with_op_and_time": {"transforms.u.add.fields": "op,source.ts_ms"},
    "row_behind_a_predicate": PREDICATE,
    "row_read": {"transforms.u.route.by.field": "name"},
}


def batch(*, schemas: bool) -> EncodedBatch:
    """Inserted rows."""
    columns = (
        CatalogColumn(name="id", type_oid=20, not_null=True),
        CatalogColumn(name="name", type_oid=25, not_null=True),
        CatalogColumn(name="note", type_oid=25),
        CatalogColumn(name="amount", type_oid=20),
    )
    table = CatalogTable(
        oid=7, schema="public", table="items", replica_identity="d", columns=columns, primary_key=("id",)
    )
    shaper = Shaper(prefix="t", selection=Selection(), modes=Modes(), types=TypeCatalog())
    form = Format(key_schemas=schemas, value_schemas=schemas, version="1", name="t", database="db")
    pieces = Envelope(shaper.shape(relation_of(table), table), form)
    first, second, third = pieces.source(Moment(xid=9, commit_time_us=1_700_000_000_123_456, last_commit_lsn=50))
    tail = third + pieces.tail("c", 1_700_000_000_200)
    values = [
        b'%b{"id":%d,"name":"name %d","note":"some text of a row","amount":%d}%b%d%b%d%b'
        % (pieces.create_head, row, row, 3 * row, first, row, second, row, tail)
        for row in range(ROWS)
    ]
    keys = [b'%b{"id":%d}%b' % (pieces.key_head, row, pieces.key_tail) for row in range(ROWS)]
    return EncodedBatch(topic="t.public.items", keys=keys, values=values)


def work(config: dict[str, str], *, schemas: bool) -> Callable[[], None]:
    """What the source loop does with a batch, up to what it hands to the producer."""
    converter = JsonConverter(schemas_enable=schemas)
    chain = chain_of(UNWRAP | config, converter, converter)
    assert chain is not None
    encode, given = unless_encoded(converter.encode), batch(schemas=schemas)

    def once() -> None:
        if chain.apply_encoded(given) is None:
            for outcome in chain.apply(records_of(given)):
                encode(outcome.value, outcome.value_schema)  # type: ignore[union-attr]

    return once


def rate(once: Callable[[], None]) -> float:
    """Rows per CPU-second."""
    once()
    began = time.process_time()
    for _ in range(REPEATS):
        once()
    return ROWS * REPEATS / (time.process_time() - began)


def run(rounds: int = 3) -> None:
    """Measure."""
    results = {
        label: {
            name: round(statistics.median(rate(work(config, schemas=schemas)) for _ in range(rounds)))
            for name, config in CASES.items()
        }
        for label, schemas in (("rows_per_cpu_s", False), ("rows_per_cpu_s_with_schemas", True))
    }
    emit("unwrap", {"rows": ROWS * REPEATS, "rounds": rounds, **results})


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
