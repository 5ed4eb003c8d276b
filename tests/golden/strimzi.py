"""What the Strimzi operator asks of a Connect worker

Read in github.com/strimzi/strimzi-kafka-operator, `KafkaConnectApiImpl`; the order of calls is from its documentation
and the offsets from its proposal 76. Every call has fixed status codes; loggers may have no field it does not know; a
connector is written anew whenever its configuration differs in anything from the wanted one; 404 of a status and 409
are repeated with growing pauses, ten times.
"""

from collections.abc import Mapping
from typing import Any

from tests.golden.tool_calls import (
    BROKEN,
    ERROR,
    FAILED_TASK,
    ONE_TASK,
    SINK,
    SOURCE,
    SOURCE_PARTITION,
    STOPPED,
    TEXT,
    Call,
    Each,
    Only,
    Tool,
    answered,
    call,
)

path = "/connectors/s"
logger = Only({"level": TEXT, "last_modified?": (int, str, None)})
state = {"connector": {"state": str}, "tasks": [{"id": int, "state": str}]}
wanted = {**SOURCE, "tasks.max": 1, "tasks.max.enforce": True}
as_text = {**SOURCE, "tasks.max": "1", "tasks.max.enforce": "true", "name": "s"}


def shown(until: Mapping[str, Any]) -> Call:
    return call("GET", f"{path}/status", reads=state, until=until)


def deleted(name: str) -> tuple[Call, ...]:
    return (
        call("DELETE", f"/connectors/{name}", taken=(204,)),
        call("GET", f"/connectors/{name}/status", taken=(404,), reads=ERROR, until=answered(404)),
    )


def level(name: str, wanted: str) -> Call:
    return call("PUT", f"/admin/loggers/{name}?scope=cluster", {"level": wanted}, taken=(200, 204))


STRIMZI = Tool(
    name="Strimzi operator",
    source="`KafkaConnectApiImpl` at 52b045f; its order and offsets by its documentation and proposal 76",
    headers={"Accept": "application/json", "Content-Type": "application/json"},
    commands={
        "plugins": (call("GET", "/connector-plugins", reads=[{"class": str, "type": str, "version?": TEXT}]),),
        "loggers": (
            call("GET", "/admin/loggers/", reads=Each(logger), names_are_data=True),
            level("root", "INFO"),
            level("org.reflections", "ERROR"),
            # Levels that did not stay would be set again at every reconciliation.
            call(
                "GET",
                "/admin/loggers/",
                reads=Each(logger),
                names_are_data=True,
                until={"root.level": "INFO", "org%2Ereflections.level": "ERROR"},
            ),
        ),
        "connectors, none there": (call("GET", "/connectors", reads=[str]),),
        "create": (
            call("GET", f"{path}/config", taken=(404,), reads=ERROR),
            call("PUT", f"{path}/config", wanted, taken=(201,), reads=dict),
            shown(ONE_TASK),
            call("GET", f"{path}/topics", reads={"s": {"topics": [str]}}, until={"s.topics.0": ...}),
        ),
        "create, stopped": (
            call("GET", "/connectors/s-stopped/config", taken=(404,), reads=ERROR),
            call(
                "POST",
                "/connectors",
                {"name": "s-stopped", "config": SINK, "initial_state": "STOPPED"},
                taken=(201,),
                reads=dict,
            ),
            call("GET", "/connectors/s-stopped/status", reads=state, until=STOPPED),
            *deleted("s-stopped"),
        ),
        "create, invalid": (
            call("PUT", "/connectors/s-bad/config", {**SOURCE, "tasks.max": 0}, taken=(400,), reads=ERROR),
        ),
        "nothing to do": (
            call("GET", "/connectors", reads=["s"]),
            # What differs from the wanted configuration in anything is written again, and the connector restarted.
            call("GET", f"{path}/config", reads=Only(as_text)),
            call("GET", path, reads=dict),
            shown(ONE_TASK),
            call("GET", f"{path}/topics", reads={"s": {"topics": [str]}}),
        ),
        "update": (
            call("PUT", f"{path}/config", {**wanted, "batch.size": 7}, taken=(200,), reads=dict),
            call("GET", f"{path}/config", reads=Only({**as_text, "batch.size": "7"})),
            shown(ONE_TASK),
        ),
        "restart annotation": (
            call("POST", f"{path}/restart?includeTasks=false&onlyFailed=false", taken=(204,)),
            shown(ONE_TASK),
            call("POST", f"{path}/restart?includeTasks=true&onlyFailed=false", taken=(202,), reads=dict),
            shown(ONE_TASK),
        ),
        "restart-task annotation": (
            call("POST", f"{path}/tasks/0/restart", taken=(204,)),
            shown(ONE_TASK),
        ),
        "auto-restart": (
            call("PUT", "/connectors/s-broken/config", BROKEN, taken=(201,), reads=dict),
            call("GET", "/connectors/s-broken/status", reads=state, until=FAILED_TASK),
            call("POST", "/connectors/s-broken/restart?includeTasks=true&onlyFailed=true", taken=(202,), reads=state),
            call("GET", "/connectors/s-broken/status", reads=state, until=FAILED_TASK),
        ),
        "paused": (
            call("PUT", f"{path}/pause", taken=(202,)),
            shown({"connector.state": "PAUSED"}),
        ),
        "stopped": (
            call("PUT", f"{path}/stop", taken=(204,)),
            shown(STOPPED),
        ),
        "offsets listed": (call("GET", f"{path}/offsets", reads={"offsets": [dict]}, until={"offsets.0": ...}),),
        "offsets altered": (
            call("PATCH", f"{path}/offsets", {"offsets": [{"partition": SOURCE_PARTITION, "offset": {"position": 4}}]}),
            call("GET", f"{path}/offsets", reads={"offsets": [dict]}),
        ),
        "offsets reset": (
            call("DELETE", f"{path}/offsets"),
            call("GET", f"{path}/offsets", reads={"offsets": [dict]}),
        ),
        "running": (
            call("PUT", f"{path}/resume", taken=(202,)),
            shown(ONE_TASK),
        ),
        "connectors nobody declared": (
            call("GET", "/connectors", reads=[str]),
            *deleted("s-broken"),
            *deleted("s"),
            call("GET", "/connectors", reads=[str]),
        ),
    },
)
