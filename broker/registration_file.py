"""What a broker's folder remembers of its place in the cluster

`broker.registration` names the epoch of the registration under which the logs beside it were written, and how they
were. The next start says that epoch to the controller if nothing acknowledged in it can be lost here: after a stop in
order, or where nothing is acknowledged before it is on the disk. The controller compares it with the one it knows, so
that a folder that was emptied, or is from before the last registration, is not taken for the one that was in sync
(KIP-966). A copy that was made since cannot be told from the folder itself.

A process that dies when the controller has taken it in, and the new epoch is not here yet, has appended nothing and
acknowledged nothing. So its name is here first (`registering`), and the next start goes by it: it is the same
incarnation, which keeps the epoch that nobody had heard of.
"""

import uuid
from dataclasses import dataclass
from typing import Final

from tidemill.core.runtime.disk import Directory

NAME: Final = "broker.registration"
UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRegistration:
    """`survives_a_crash` says that every record was on the disk before it was acknowledged.

    `registering` is the incarnation that was about to register, and may have, behind that epoch.
    """

    broker_epoch: int
    survives_a_crash: bool
    registering: uuid.UUID | None = None


def read_registration(data: Directory) -> PastRegistration | None:
    """The last registration; None for a folder that has none, or one that cannot be read."""
    try:
        lines = data.read(NAME).decode().splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    rows = dict(line.partition("=")[::2] for line in lines)
    epoch = rows.get("broker.epoch", "")
    if rows.get("version") != "0" or not epoch.isdecimal():
        return None  # whoever lost a file may have lost others
    try:
        registering = uuid.UUID(rows["registering"]) if "registering" in rows else None
    except ValueError:
        return None
    survives = rows.get("flush.policy") == "group"
    return PastRegistration(broker_epoch=int(epoch), survives_a_crash=survives, registering=registering)


def write_registration(data: Directory, registration: PastRegistration) -> None:
    """Remember it; durable when this returns. Raises OSError."""
    policy = "group" if registration.survives_a_crash else "os"
    text = f"version=0\nbroker.epoch={registration.broker_epoch}\nflush.policy={policy}\n"
    if registration.registering is not None:
        text += f"registering={registration.registering}\n"
    data.replace(NAME, text.encode())


def epoch_held(data: Directory, *, closed_in_order: bool) -> int:
    """The epoch all of whose acknowledged records are still in the folder; `UNKNOWN` is none."""
    past = read_registration(data)
    return past.broker_epoch if past is not None and (closed_in_order or past.survives_a_crash) else UNKNOWN
