"""Settings out of Kafka's metadata, and whether they are any here"""

from tidemill.broker.config import NO_EFFECT
from tidemill.core.config import ConfigError, ConfigTable


def why_no_setting(table: ConfigTable, name: str, value: str) -> str | None:
    """Why a setting is not taken over; None if it is."""
    if name not in table:
        return NO_EFFECT.get(name, "not a setting here")
    if not table[name].dynamic:
        return "cannot be changed while running; set it in the file"
    try:
        table[name].parse(value)
    except ConfigError as error:
        return "; ".join(error.problems)
    return None
