"""Settings out of Kafka's metadata, and whether they are any here"""

from tidemill.broker.config import BROKER_CONFIG, NO_EFFECT
from tidemill.broker.quorum.rules import COMMON_KEYS
from tidemill.core.config import ConfigError, ConfigTable


def why_no_setting(table: ConfigTable, name: str, value: str, *, of: str = "") -> str | None:
    """Why a setting of that topic or broker (empty is all brokers) is not taken over; None if it is."""
    if name not in table:
        return NO_EFFECT.get(name, "not a setting here")
    if not table[name].dynamic:
        return "cannot be changed while running; set it in the file"
    if table is BROKER_CONFIG and of and name in COMMON_KEYS:
        return "controller and leader go by it both, so it holds for no single broker: set it for all, or for topics"
    try:
        table[name].parse(value)
    except ConfigError as error:
        return "; ".join(error.problems)
    return None
