"""What the partition machine wants done

Values only. What has moved (the high watermark, who is alone) is read from the machine after each step; these are the
things that somebody else has to do.
"""

from dataclasses import dataclass
from typing import TypeAlias

from tidemill.core.error_code import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeIsr:
    """Ask the controller for this ISR (AlterPartition); said again until an image or a refusal answers it.

    `broker_epochs` are, in the order of `isr`, those in which the members were last heard of, -1 where that is not
    known: a follower that has restarted since is not the one that was in sync (KIP-903).
    """

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """Fetch from this leader from now on, and from no other; -1 is nobody: there is none."""

    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """Cut the log at `offset`, by which the machine hears that it is `truncated`, then fetch from there.

    `lost` records of those that go had been committed, which only an unclean election leads to.
    """

    offset: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartMoved:
    """A log begins elsewhere, this broker's or, as far as a leader knows, that of a follower.

    Whoever waits for what a leader does is to look again; a follower's leader is to be told.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseWaiting:
    """Whoever waits for an acknowledgement by all replicas gets this error."""

    error: ErrorCode


Action: TypeAlias = ProposeIsr | Follow | Truncate | LogStartMoved | RefuseWaiting
