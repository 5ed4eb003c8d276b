"""`tidemill cluster balance` and `unregister`: moves that are looked on at

The plan is shown before anything is done, and asked about; where the cluster has changed by then, nothing is done.
What moves then is the cluster's business: whoever ends the command ends the looking only, and the next one looks on, or
takes it back (`--cancel`). The throttle goes away with the last replica that has moved; one that an earlier command has
left behind goes away with the next (`throttling`).
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Final, Protocol, TypeVar

import typer

from tidemill.bootstrap import read_command_config, unanswered
from tidemill.cluster.moving import (
    Progress,
    Situation,
    broker_rows,
    changed_since,
    left_out,
    named,
    objections,
    progress,
    still_held,
    told_bytes,
)
from tidemill.cluster.reassigning import Reassigner, moved_to
from tidemill.cluster.throttling import Throttling
from tidemill.core.client.balance import BalancePlan, Move, Place, plan
from tidemill.core.client.cluster import ClusterClient
from tidemill.core.client.connection import ConnectionFailed
from tidemill.core.client.security import dialer_of
from tidemill.core.errors import KafkaError
from tidemill.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandConfig
from tidemill.output import complain, fail, new_table, print_json, print_table

ANSWER_TIMEOUT_MS: Final = 30_000
LOOK_S: Final = 0.5
"""Between two looks at what moves."""

TELL_S: Final = 5.0
"""Between two lines about it."""

SETTLED_S: Final = 10.0
SHOWN_MAX: Final = 20
"""So many moves are listed; `--json` has all."""

INTERRUPTED: Final = 130
T = TypeVar("T")

Drain = Annotated[
    list[int] | None,
    typer.Option("--drain", metavar="ID", help="Empty this broker, before it leaves; may be given several times."),
]
Rate = Annotated[
    int | None,
    typer.Option(
        "--throttle", metavar="BYTES", min=1, help="Most bytes a second that each broker sends, and fetches, of it."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def balance(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    drain: Drain = None,
    throttle: Rate = None,
    yes: Yes = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take back what is on the move.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give all brokers the same number of replicas and of leaders, with few moves.

    The plan is shown first, and asked about. Ending the command does not end what moves: run it again to look on, with
    --throttle to hold it back or with --cancel to take it back.
    """
    if as_json and not dry_run:
        fail("--json shows a plan: give --dry-run too", 2)
    if cancel and (dry_run or drain or throttle is not None):
        fail("--cancel takes back what is on the move, and nothing else: give it alone", 2)
    if cancel:
        status = _run(_cancel, bootstrap, command_config)
    else:
        status = _balance(bootstrap, command_config, drain or [], throttle, dry_run=dry_run, yes=yes, as_json=as_json)
    if status:
        raise typer.Exit(status)


def _balance(
    bootstrap: str,
    command_config: CommandConfig,
    drain: list[int],
    throttle: int | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    unfinished = Unfinished()

    async def planned(client: ClusterClient) -> tuple[Situation, BalancePlan]:
        reassigner = Reassigner(client)
        situation = await reassigner.situation()
        if situation.ongoing and not dry_run:
            await _Moving(client, reassigner, throttle, unfinished).look_on(situation)
            situation = await reassigner.situation()
        return situation, await asyncio.to_thread(plan, situation.holdings, leaving=drain)

    async def carried_out(client: ClusterClient) -> int:
        return await _carry_out(_Moving(client, Reassigner(client), throttle, unfinished), made, drain)

    situation, made = _run(planned, bootstrap, command_config, unfinished)
    if away := left_out(situation, drain):
        complain(away)
    if wrong := list(objections(situation, made, drain)):
        for each in wrong:
            complain(each)
        return 1
    _show(situation, made, as_json=as_json)
    if dry_run:
        return 0
    if made.moves and not yes:
        _ask()  # outside of the event loop, which would keep ^C to itself
    return _run(carried_out, bootstrap, command_config, unfinished) if made.moves or drain else 0


async def _carry_out(moving: "_Moving", made: BalancePlan, drain: list[int]) -> int:
    done = True
    if made.moves:
        situation = await moving.reassigner.situation()
        if changed := changed_since(made.moves, situation):
            complain(f"{named(changed)} is held by others than when the plan was made: nothing was moved, plan again")
            return 1
        done = await moving.carry_out(situation, made)
    now = await moving.reassigner.situation() if drain else None
    for node in drain:
        assert now is not None
        if held := still_held(now, node):
            complain(f"broker {node} holds {named(held)}: run this again before you stop it")
            done = False
        else:
            print(
                f"broker {node} holds nothing any more: stop it, then 'tidemill cluster unregister {node}'; topics "
                "that are made until then may be put there again"
            )
    return 0 if done else 1


def unregister(
    node_id: Annotated[int, typer.Argument(metavar="ID", help="A broker that has stopped.", show_default=False)],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Have the cluster forget a broker that has stopped for good, and holds nothing."""

    async def work(client: ClusterClient) -> int:
        reassigner = Reassigner(client)
        situation = await reassigner.situation()
        if node_id in reassigner.running:
            complain(
                f"broker {node_id} is running: empty it ('tidemill cluster balance --drain {node_id}') and stop it"
            )
            return 1
        if held := still_held(situation, node_id):
            complain(
                f"broker {node_id} holds replicas of {named(held)}: let others have them first ('tidemill cluster "
                f"balance --drain {node_id}')"
            )
            return 1
        await reassigner.unregister(node_id)
        print(f"broker {node_id} is forgotten")
        return 0

    status = _run(work, bootstrap, command_config)
    if status:
        raise typer.Exit(status)


@dataclass(slots=True, kw_only=True)
class Unfinished:
    """Mutable: what is so for now, and stays so if the command ends here."""

    moving: bool = False
    throttled: bool = False

    def told(self) -> str:
        """A sentence about it, with what to do."""
        if self.moving:
            held = ", held back as it was" if self.throttled else ""
            return (
                f"not looked at any more; what moves goes on{held}: 'tidemill cluster balance' looks on, with --cancel "
                "it takes that back"
            )
        if self.throttled:
            return "a throttle may be left: 'tidemill cluster balance --cancel' takes it away"
        return "nothing was moved"


def _run(
    work: Callable[[ClusterClient], Awaitable[T]],
    bootstrap: str,
    command_config: CommandConfig,
    unfinished: Unfinished | None = None,
) -> T:
    left = unfinished or Unfinished()

    async def connected() -> T:
        async with ClusterClient(
            bootstrap, client_id="tidemill-cluster", dialer=dialer, call_timeout_ms=ANSWER_TIMEOUT_MS
        ) as client:
            return await work(client)

    try:
        dialer = dialer_of(read_command_config(command_config))
        return asyncio.run(connected())
    except ValueError as error:
        fail(str(error), 2)
    except (ConnectionFailed, KafkaError) as error:
        if left.moving or left.throttled:
            complain(left.told())
        fail(unanswered(bootstrap, error) if isinstance(error, ConnectionFailed) else str(error))
    except KeyboardInterrupt:
        fail(left.told(), INTERRUPTED)


class _Moving:
    """Has partitions moved, and looks on until nothing moves."""

    def __init__(
        self, client: ClusterClient, reassigner: Reassigner, bytes_per_s: int | None, unfinished: Unfinished
    ) -> None:
        self.reassigner = reassigner
        self._client = client
        self._bytes_per_s = bytes_per_s
        self._throttling = Throttling(reassigner)
        self._unfinished = unfinished

    async def carry_out(self, situation: Situation, made: BalancePlan) -> bool:
        """Whether all of it was done."""
        moves = {Place(each.topic, each.partition): each for each in made.moves}
        await self._hold_back(made.moves)
        self._unfinished.moving = True
        refused = await self.reassigner.move({place: each.after for place, each in moves.items()})
        for place, reason in refused.items():
            complain(f"{named([place])} is not moved: {reason}")
        begun = [each for place, each in moves.items() if place not in refused]
        return await self._to_the_end(situation, begun) and not refused

    async def look_on(self, situation: Situation) -> None:
        """What somebody else has begun."""
        print(f"{len(situation.ongoing)} partitions are on the move already; what is left is looked at afterwards")
        self._unfinished.moving = True
        await self._hold_back(situation.ongoing)
        await self._to_the_end(situation, situation.ongoing)

    async def _hold_back(self, moves: tuple[Move, ...]) -> None:
        if self._bytes_per_s is not None:
            self._unfinished.throttled = True
            await self._throttling.begin(self._bytes_per_s, moves)

    async def _to_the_end(self, situation: Situation, moves: Iterable[Move]) -> bool:
        moves = tuple(moves)
        await look(self.reassigner, situation, moves)
        self._unfinished.moving = False
        await self._throttling.end()
        self._unfinished.throttled = False
        amiss = await moved_to(self._client, moves, SETTLED_S)
        if amiss:
            complain(f"{named(amiss)} has not got there: somebody has taken that back, or has moved it elsewhere")
        places = [Place(each.topic, each.partition) for each in moves]
        for place, reason in (await self.reassigner.elect_preferred(places)).items():
            complain(f"{named([place])} is not led by who is preferred: {reason}")
        return not amiss


class Looked(Protocol):
    """What a cluster is asked by whoever looks on: `Reassigner`."""

    async def ongoing(self) -> tuple[Move, ...]:
        """What moves."""

    async def sizes_at(
        self, nodes: Iterable[int], places: Iterable[Place] | None
    ) -> tuple[dict[tuple[Place, int], int], dict[int, int]]:
        """Bytes of each partition at each of these brokers, and the room that they have."""

    async def who_runs(self) -> tuple[int, ...]:
        """Brokers that are not fenced."""


async def look(reassigner: Looked, situation: Situation, moves: tuple[Move, ...]) -> None:
    """Tell how far these are until none of them moves any more."""
    targets = {node for each in moves for node in set(each.after) - set(each.before)}
    loop = asyncio.get_running_loop()
    told_s = 0.0
    told: Progress | None = None
    while True:
        under_way = {Place(each.topic, each.partition) for each in await reassigner.ongoing()}
        mine = [Place(each.topic, each.partition) for each in moves]
        there, _free = await reassigner.sizes_at(targets, [each for each in mine if each in under_way])
        running = await reassigner.who_runs()
        found = progress(moves, situation.sizes, under_way, there, running)
        since_s = loop.time() - told_s
        if told is None or found.over or since_s >= TELL_S:
            _tell(found, 0 if told is None else (found.copied_bytes - told.copied_bytes) / since_s)
            if found.missing and (told is None or found.missing != told.missing):
                complain(f"broker {', '.join(map(str, found.missing))} is to copy, and does not run: start it")
            told_s, told = loop.time(), found
        if found.over:
            return
        await asyncio.sleep(LOOK_S)


def _tell(found: Progress, bytes_per_s: float) -> None:
    rate = f", {told_bytes(bytes_per_s)}/s" if bytes_per_s > 0 and not found.over else ""
    print(
        f"moved {found.moved} of {found.partitions} partitions, {told_bytes(found.copied_bytes)} of "
        f"{told_bytes(found.total_bytes)} copied{rate}"
    )
    sys.stdout.flush()


async def _cancel(client: ClusterClient) -> int:
    reassigner = Reassigner(client)
    await reassigner.who_runs()
    ongoing = await reassigner.ongoing()
    refused = await reassigner.move({Place(each.topic, each.partition): None for each in ongoing})
    for place, reason in refused.items():
        complain(f"{named([place])} is moved on: {reason}")
    print(f"{len(ongoing) - len(refused)} partitions stay where they were" if ongoing else "nothing is on the move")
    await Throttling(reassigner).end()
    return 1 if refused else 0


def _ask() -> None:
    if not sys.stdin.isatty():
        fail("nobody is there to be asked: give --yes, or --dry-run", 2)
    typer.confirm("move these?", abort=True)


def _show(situation: Situation, made: BalancePlan, *, as_json: bool) -> None:
    rows = broker_rows(situation, made)
    if as_json:
        print_json({"moves": [asdict(each) for each in made.moves], "brokers": [asdict(each) for each in rows]})
        return
    if situation.ongoing:
        print(f"{len(situation.ongoing)} partitions are on the move already, and not in this plan")
    if not made.moves:
        print("nothing to move: replicas and leaders are as even as they can be among the brokers that run")
        return
    table = new_table("broker", "replicas", "leaders", "data", "to copy")
    for row in rows:
        before, after = map(told_bytes, row.size_bytes)
        copied = told_bytes(row.incoming_bytes) if row.incoming_bytes else "-"
        replicas, leaders = (f"{had} -> {gets}" for had, gets in (row.replicas, row.leaders))
        table.add_row(str(row.node_id), replicas, leaders, f"{before} -> {after}", copied)
    print_table(table)
    copied_bytes = sum(row.incoming_bytes for row in rows)
    print(f"{len(made.moves)} partitions, {made.copies} replicas to copy, {told_bytes(copied_bytes)} in all")
    for each in made.moves[:SHOWN_MAX]:
        order = "" if each.copies else " (the order alone, nothing is copied)"
        print(f"  {each.topic}-{each.partition}: {_list(each.before)} -> {_list(each.after)}{order}")
    if len(made.moves) > SHOWN_MAX:
        print(f"  and {len(made.moves) - SHOWN_MAX} more; --json has all")


def _list(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))
