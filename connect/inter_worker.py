"""The settings of what workers ask of each other

`inter.worker.*`, with the names, defaults and rules of Apache's worker (KIP-507, `DistributedConfig`): how the session
key of the group is made, with what requests are signed, and which signatures are taken. All workers of a group should
have the same; while they are changed, one after the other, the algorithms to verify with hold the old one and the new.

Java takes whatever its runtime offers; here it is what every Java runtime offers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from tidemill.connect.session_key import BITS_MAX, BITS_MIN, KeySettings
from tidemill.connect.signing import DIGESTS
from tidemill.core.config import ConfigKey, ConfigType, Importance, Validator, Value, in_range

_GENERATION = "inter.worker.key.generation.algorithm"
_SIZE = "inter.worker.key.size"
_TTL = "inter.worker.key.ttl.ms"
_SIGNATURE = "inter.worker.signature.algorithm"
_VERIFICATION = "inter.worker.verification.algorithms"


def _algorithm(value: Value) -> str | None:
    return None if value in DIGESTS else f"{value} is not available: there are {', '.join(DIGESTS)}"


def _algorithms(value: Value) -> str | None:
    algorithms = cast("tuple[str, ...]", value)
    if not algorithms:
        return "at least one algorithm is needed"
    return next(filter(None, map(_algorithm, algorithms)), None)


def _key(name: str, type: ConfigType, default: Value, doc: str, valid: Validator) -> ConfigKey:
    return ConfigKey(name=name, type=type, default=default, doc=doc, importance=Importance.LOW, valid=valid)


KEYS: Final = (
    _key(_TTL, ConfigType.INT, 3_600_000, "Lifetime of the key that workers sign with; 0 for no end", in_range(0)),
    _key(_GENERATION, ConfigType.STRING, "HmacSHA256", "What that key is made for", _algorithm),
    _key(_SIZE, ConfigType.INT, None, "Its bits; when not set, what is usual", in_range(BITS_MIN, BITS_MAX)),
    _key(_SIGNATURE, ConfigType.STRING, "HmacSHA256", "What this worker signs with", _algorithm),
    _key(_VERIFICATION, ConfigType.LIST, ("HmacSHA256",), "Which signatures of other workers it takes", _algorithms),
)
"""Every setting, as rows of the worker's table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterWorker:
    """The settings, parsed."""

    key: KeySettings = field(default_factory=KeySettings)
    signature: str = "HmacSHA256"
    verification: tuple[str, ...] = ("HmacSHA256",)


def problems(values: Mapping[str, Value]) -> Iterator[str]:
    """What does not go together; `values` may lack what is wrong by itself."""
    signature, verification = values.get(_SIGNATURE), values.get(_VERIFICATION)
    if signature is not None and isinstance(verification, tuple) and signature not in verification:
        yield (
            f"Invalid value {signature!r} for configuration {_SIGNATURE}: "
            f"Signature algorithm must be present in {_VERIFICATION} list"
        )


def parsed(values: Mapping[str, Value]) -> InterWorker:
    """The settings of a parsed table."""
    return InterWorker(
        key=KeySettings(
            algorithm=str(values[_GENERATION]),
            bits=cast("int | None", values[_SIZE]),
            ttl_ms=cast(int, values[_TTL]),
        ),
        signature=str(values[_SIGNATURE]),
        verification=cast("tuple[str, ...]", values[_VERIFICATION]),
    )
