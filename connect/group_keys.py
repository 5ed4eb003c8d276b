"""The settings of a worker's place in its group

Names and meaning are those of Apache's worker where it has them. The defaults are shorter: a lease ends what a worker
does that is out of its group, and a worker that is stopped says so.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from tidemill.core.config import ConfigKey, ConfigType, Importance, Validator, Value, in_range, one_of

PROTOCOLS: Final = ("tidemill", "sessioned")
"""What workers can be told to speak, as their group names it."""

_BEATS = "heartbeat.interval.ms"
_SESSION = "session.timeout.ms"


def _key(name: str, type: ConfigType, default: Value, doc: str, valid: Validator) -> ConfigKey:
    return ConfigKey(name=name, type=type, default=default, doc=doc, importance=Importance.LOW, valid=valid)


KEYS: Final = (
    _key(
        _SESSION,
        ConfigType.INT,
        6_000,
        "How long after its last sign of life a worker's tasks are its own; then it has killed them, and 5 s later "
        "others have them",
        in_range(1_000),
    ),
    _key(_BEATS, ConfigType.INT, 500, "Time between signs of life to the group", in_range(10)),
    _key(
        "rebalance.timeout.ms",
        ConfigType.INT,
        60_000,
        "How long a worker may take to join a new round of its group",
        in_range(1_000),
    ),
    _key(
        "scheduled.rebalance.max.delay.ms",
        ConfigType.INT,
        30_000,
        "How long the tasks of a worker that was stopped in order wait for its return; by `sessioned` also of one that "
        "was killed",
        in_range(0),
    ),
    _key(
        "tidemill.group.protocol",
        ConfigType.STRING,
        PROTOCOLS[0],
        "How the workers of a group agree: `tidemill`, or `sessioned` as Apache's do, so that theirs may be among them",
        one_of(*PROTOCOLS),
    ),
)
"""Every setting, as rows of the worker's table."""


def problems(values: Mapping[str, Value]) -> Iterator[str]:
    """What does not go together; `values` may lack what is wrong by itself."""
    beats_ms, session_ms = (cast(int, values.get(name, 0)) for name in (_BEATS, _SESSION))
    if values and beats_ms >= session_ms:
        yield f"{_BEATS}={beats_ms} must be below {_SESSION}={session_ms}"
