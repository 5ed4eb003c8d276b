"""One member with a log in memory, told and asked step by step

The log does what the machine says at once, and what is appended is durable at once unless a test says otherwise.
"""

import uuid
from collections.abc import Sequence
from typing import Any, TypeVar

from tests.sim.quorum_disk import Entry, SimulatedLog, decode
from tidemill.broker.quorum.raft.actions import (
    Action,
    Append,
    AppendLeaderChange,
    AppendVoters,
    Persist,
    Reply,
    Send,
    Truncate,
)
from tidemill.broker.quorum.raft.election import ElectionState
from tidemill.broker.quorum.raft.events import Answered, Event, LogChanged, Received, Tick, VotersChanged
from tidemill.broker.quorum.raft.machine import QuorumMachine
from tidemill.broker.quorum.raft.messages import FetchRequest, Request, VoteRequest, VoteResponse
from tidemill.broker.quorum.raft.settings import QuorumSettings
from tidemill.broker.quorum.raft.voters import Voter, VoterEndpoint, VoterSet

CLUSTER = "c"
KindT = TypeVar("KindT")


class NoChance:
    """Randomness that is none: the least of everything."""

    def random(self) -> float:
        return 0.0


def directory(node_id: int) -> uuid.UUID:
    return uuid.UUID(int=node_id)


def voter(node_id: int) -> Voter:
    endpoint = VoterEndpoint("CONTROLLER", f"n{node_id}", 9093)
    return Voter(node_id=node_id, directory_id=directory(node_id), endpoints=(endpoint,))


def voters(*ids: int) -> VoterSet:
    return VoterSet.of(voter(each) for each in ids)


def of(kind: type[KindT], actions: Sequence[object]) -> list[KindT]:
    """Those of one kind."""
    return [each for each in actions if isinstance(each, kind)]


class Lone:
    """Mutable: a machine, its log and what it has said."""

    def __init__(
        self,
        *ids: int,
        node_id: int = 1,
        entries: Sequence[Entry] = (),
        election: ElectionState | None = None,
        configured: bool = False,
        settings: QuorumSettings | None = None,
        **named: Any,
    ) -> None:
        self.log = SimulatedLog()
        for entry in entries:
            self.log.append(entry)
        self.log.durable_end = self.log.offset_end
        self.now_ms = 10_000
        self.node_id = node_id
        self.syncs = True
        self.late: list[AppendVoters] | None = None  # what waits for its turn, where voters are not written at once
        self.machine = QuorumMachine(
            node_id=node_id,
            directory_id=directory(node_id),
            cluster_id=CLUSTER,
            election=election or ElectionState(),
            log=self.log,
            voters=voters(*ids) if configured else VoterSet(),
            settings=settings or QuorumSettings(),
            rng=NoChance(),
            now_ms=self.now_ms,
            **{"endpoints": voter(node_id).endpoints, **named},
        )
        self.said: list[Action] = []
        self.tokens = 0
        if not configured:
            self.tell(VotersChanged(offset=-1, voters=voters(*ids)))
        self.tell(Tick())

    def tell(self, event: Event) -> list[Action]:
        """What it does about it, and about what comes of that."""
        done: list[Action] = []
        events = [event]
        while events:
            for action in self.machine.step(events.pop(0), self.now_ms):
                done.append(action)
                match action:
                    case AppendLeaderChange():
                        self.log.append(Entry(action.epoch, 0))
                        events.append(LogChanged())
                    case AppendVoters() if self.late is not None:
                        self.late.append(action)
                    case AppendVoters():
                        offset = self.log.append(Entry(action.epoch, -1))
                        events += [VotersChanged(offset=offset, voters=action.voters), LogChanged()]
                    case Append():
                        for entry in decode(action.records):
                            self.log.append(entry)
                        events.append(LogChanged())
                    case Truncate():
                        self.log.truncate(action.offset)
                        events.append(LogChanged())
                if self.syncs:
                    self.log.durable_end = self.log.offset_end
        self.said += done
        return done

    def write_late(self) -> None:
        """The voters that have waited for their turn are in the log."""
        assert self.late
        action = self.late.pop()
        offset = self.log.append(Entry(action.epoch, -1))
        self.tell(VotersChanged(offset=offset, voters=action.voters))
        self.log.durable_end = self.log.offset_end
        self.tell(LogChanged())

    def wait(self, ms: int) -> list[Action]:
        """Time goes by, with a Tick at its end."""
        self.now_ms += ms
        return self.tell(Tick())

    def ask(self, request: Request) -> Any:
        """The answer to a request, or None if it is held."""
        self.tokens += 1
        done = self.tell(Received(token=self.tokens, request=request))
        replies = [each for each in done if getattr(each, "token", None) == self.tokens]
        return getattr(replies[0], "response", None) if replies else None

    def sent(self, kind: type[KindT], done: Sequence[Action] | None = None) -> dict[int, tuple[int, KindT]]:
        """The last request of a kind to each node, with its id."""
        sends = of(Send, self.said if done is None else done)
        return {each.node_id: (each.request_id, each.request) for each in sends if isinstance(each.request, kind)}

    def answer(self, request_id: int, response: Any) -> list[Action]:
        return self.tell(Answered(request_id=request_id, response=response))

    def grant(self, *node_ids: int) -> None:
        """These vote for it, whatever it has asked them last."""
        for node_id in node_ids:
            request_id, _ = self.sent(VoteRequest)[node_id]
            self.answer(request_id, VoteResponse(epoch=self.machine.epoch, leader_id=-1, granted=True))

    def lead(self) -> None:
        """Elected, by everybody who is needed."""
        self.wait(3_000)
        others = [each for each in self.machine.voters.ids if each != self.node_id]
        needed = others[: self.machine.voters.majority - 1]
        self.grant(*needed)
        self.grant(*needed)
        assert self.machine.leads

    def append(self, count: int = 1) -> None:
        """As its client."""
        for number in range(count):
            self.log.append(Entry(self.machine.epoch, 100 + self.log.offset_end + number))
        if self.syncs:
            self.log.durable_end = self.log.offset_end
        self.tell(LogChanged())

    def fetch(self, node_id: int, offset: int | None = None, **named: Any) -> Any:
        """Somebody holds all before `offset`, by default all that is here."""
        offset = self.log.offset_end if offset is None else offset
        values: dict[str, Any] = {
            "cluster_id": CLUSTER,
            "epoch": self.machine.epoch,
            "replica_id": node_id,
            "replica_directory_id": directory(node_id),
            "offset": offset,
            "last_epoch": self.log.entries[offset - 1].epoch if 0 < offset <= self.log.offset_end else 0,
            "high_watermark": self.machine.high_watermark,
            "bytes_max": 1 << 20,
            "wait_max_ms": 500,
        }
        return self.ask(FetchRequest(**{**values, **named}))

    @property
    def persisted(self) -> list[ElectionState]:
        return [each.state for each in of(Persist, self.said)]

    @property
    def replies(self) -> dict[Any, Any]:
        return {each.token: each.response for each in of(Reply, self.said)}
