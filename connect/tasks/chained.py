"""The transforms of a task, between its configuration and its records

Without transforms there is no chain, and a task does nothing about them but look once per batch whether it has one.
What a source has serialised itself becomes one record per row, whose key and value are read only when a transform uses
them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidemill.connect.api import EncodedBatch, Record
from tidemill.connect.converters.json import JsonConverter
from tidemill.connect.converters.registry import Converter
from tidemill.connect.transforms.chain import Chain, ColumnConverter, Decode, Encode, Encoded, OneByOne, Severity

TRANSFORMING_PATIENCE_S: Final = 3.0
"""Until a batch that is still in the transforms is told in the status."""


def chain_of(config: Mapping[str, str], key_converter: Converter, value_converter: Converter) -> Chain | None:
    """The chain of a connector's configuration, None if it has no transforms."""
    if not config.get("transforms", "").strip():
        return None
    from tidemill.connect.transforms.stages import make_chain  # most tasks need none of them

    return make_chain(config, _exactly(key_converter), _exactly(value_converter), columns_of(value_converter))


def _exactly(converter: Converter) -> Decode:
    return converter.decode_exactly if isinstance(converter, JsonConverter) else converter.decode


def columns_of(converter: Converter) -> ColumnConverter:
    """Many values at once through a converter, exactly."""
    return converter if isinstance(converter, JsonConverter) else OneByOne(converter.decode, converter.encode)


def log_notices(chain: Chain, log: Any, task: str) -> None:
    """Write down what the transforms have to say about a batch, each thing once."""
    for (severity, text), count in chain.notices().items():
        tell = log.error if severity is Severity.ERROR else log.warning
        tell(text, task=task, records=count)


def unless_encoded(encode: Encode) -> Encode:
    """A converter's `encode` that hands on what is bytes of its source still."""
    return lambda value, schema: value if type(value) is Encoded else encode(value, schema)


def records_of(batch: EncodedBatch) -> list[Record]:
    """The rows of a batch whose columns agree, as records that are still to be read."""
    count = len(batch.values)
    headers = batch.headers or [()] * count
    timestamps: Sequence[int | None] = batch.timestamps_ms or [None] * count
    return [
        Record(
            topic=batch.topic,
            key=None if key is None else Encoded(key),
            value=None if value is None else Encoded(value),
            headers=header,
            timestamp_ms=timestamp_ms,
        )
        for key, value, header, timestamp_ms in zip(batch.keys, batch.values, headers, timestamps, strict=True)
    ]
