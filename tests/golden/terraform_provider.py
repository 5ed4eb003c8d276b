"""What the Terraform provider asks of a Connect worker

Read in github.com/Mongey/terraform-provider-kafka-connect, over github.com/ricardo-ch/go-kafka-connect v3. It reads
into Go types, where one value of another type fails the whole answer; after a write it asks each second for two minutes
until the change shows; repeats 409, five times in the client and then by the text of the error for a minute.
"""

from tests.golden.tool_calls import (
    BROKEN,
    ERROR,
    FAILED_TASK,
    ONE_TASK,
    SOURCE,
    TEXT,
    Call,
    Each,
    Only,
    Tool,
    answered,
    call,
)

scalar = (str, int, float, bool, None)
connector = {"name": str, "config": Each(scalar), "tasks": [{"connector": str, "task": int}], "code?": int}
status = {
    "name": str,
    "connector": Each(TEXT),
    "tasks": [{"id": int, "state": str, "worker_id": str, "trace?": TEXT}],
    "code?": int,
}
read = call("GET", "/connectors/t", reads=connector)
wanted = {**SOURCE, "name": "t", "tasks.max": "1"}
changed = {**wanted, "batch.size": "7"}
broken = {**BROKEN, "name": "t-broken"}


def steer(what: str, state: str) -> tuple[Call, ...]:
    shown = call("GET", "/connectors/t/status", reads=status, until={"connector.state": state})
    return (call("PUT", f"/connectors/t/{what}", taken=(202,)), shown, shown)


TERRAFORM = Tool(
    name="Terraform provider Mongey/kafka-connect",
    source="main at 38eeefe, go-kafka-connect v3",
    headers={"Accept": "application/json", "Content-Type": "application/json; charset=utf-8"},
    commands={
        "create": (
            call("POST", "/connectors", {"name": "t", "config": wanted}, taken=(201,), reads=connector),
            call("GET", "/connectors/t", reads=connector, until=answered(200)),
            read,
        ),
        "create, there already": (
            call("POST", "/connectors", {"name": "t", "config": wanted}, taken=(409,), reads=ERROR),
        ),
        "create, invalid": (
            call(
                "POST",
                "/connectors",
                {"name": "u", "config": {**wanted, "name": "u", "tasks.max": "0"}},
                taken=(400,),
                reads=ERROR,
            ),
        ),
        "read": (read,),
        "import, unknown": (call("GET", "/connectors/no", taken=(404,), reads=ERROR),),
        "update": (
            call("PUT", "/connectors/t/config", changed, reads=connector),
            # Equal in number and in every value, or it asks for two minutes.
            call("GET", "/connectors/t/config", reads=Only(dict.fromkeys(changed, scalar))),
            read,
        ),
        "status, paused": (
            call("GET", "/connectors/t/status", reads=status, until=ONE_TASK),
            *steer("pause", "PAUSED"),
        ),
        "status, running": steer("resume", "RUNNING"),
        "status, failed and restarted": (
            call("POST", "/connectors", {"name": "t-broken", "config": broken}, taken=(201,), reads=connector),
            call("GET", "/connectors/t-broken/status", reads=status, until=FAILED_TASK),
            call("POST", "/connectors/t-broken/restart", taken=(204,)),
            call("DELETE", "/connectors/t-broken", taken=(204,)),
        ),
        "status, unknown": (call("GET", "/connectors/no/status", taken=(404,), reads=ERROR),),
        "tasks": (
            call("GET", "/connectors/t/tasks", reads=[{"id": {"connector": str, "task": int}, "config": Each(scalar)}]),
            call("GET", "/connectors/t/tasks/0/status", reads={"id": int, "state": str, "worker_id": str}),
            call("POST", "/connectors/t/tasks/0/restart", taken=(204,)),
        ),
        "plan": (call("GET", "/connectors", reads=[str]),),
        "delete": (
            call("DELETE", "/connectors/t", taken=(204,)),
            call("GET", "/connectors/t", taken=(404,), reads=ERROR, until=answered(404)),
        ),
        "delete, unknown": (call("DELETE", "/connectors/no", taken=(404,), reads=ERROR),),
    },
)
