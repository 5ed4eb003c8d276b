"""Change capture through a chain: rows per CPU-second, beside Debezium

The table, the workers and the counting of `cdc`, with ExtractNewRecordState and behind it a transform that puts a field
with the same text into every row: ours is a function in Python (`marking`), Debezium's is Apache's InsertField, since
it can run none in Python. `tidemill_unwrap_only` is ours without that function: there what is left of a row stays the
bytes that the capture has made of it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import cdc, plugin_site
from benchmarks.measure import emit, ratio

UNWRAP = {"transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"}


def chain(mark: str) -> dict[str, str]:
    """Both transforms, the second of this type."""
    settings = {"type": mark, "static.field": "region", "static.value": "north"}
    return {**UNWRAP, "transforms": "unwrap,mark", **{f"transforms.mark.{key}": text for key, text in settings.items()}}


def run(folder: Path, *, with_peers: bool, rounds: int) -> None:
    """Measure one after the other, each alone on the machine."""
    results: dict[str, Any] = {}

    def ours(name: str, more: Mapping[str, str]) -> dict[str, float]:
        with cdc.ours(folder / name, environ) as (url, bootstrap, pid):
            return cdc.one(folder / name, name, url, bootstrap, pid, more)

    environ = {"PYTHONPATH": plugin_site.install(folder / "site", "marking", ["mark"], group="tidemill.transforms")}
    results["tidemill"] = ours("tidemill", chain("mark"))
    results["tidemill_unwrap_only"] = ours("unwrap", UNWRAP)
    if with_peers:
        with cdc.theirs(folder / "debezium") as (url, bootstrap, pid):
            more = chain("org.apache.kafka.connect.transforms.InsertField$Value")
            results["debezium"] = cdc.one(folder / "debezium", "debezium", url, bootstrap, pid, more)
    peer = results.get("debezium", {})
    ratios = {key: ratio(value, peer.get(key)) for key, value in results["tidemill"].items()}
    emit("cdc_chain", {**results, "ratios": ratios})
