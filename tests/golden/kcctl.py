"""What kcctl asks of a Connect worker

Read in github.com/kcctl/kcctl, `KafkaConnectApi` and the commands. It skips unknown fields; reads the version of
`GET /` as two numbers before most commands and refuses its own command below a release; repeats 409, and any error
whose text tells of a rebalance, each 100 ms for 30 s.
"""

from collections.abc import Mapping
from typing import Any

from tests.golden.tool_calls import (
    BROKEN,
    ERROR,
    FAILED_TASK,
    ONE_TASK,
    SINK,
    SINK_PARTITION,
    SOURCE,
    SOURCE_PARTITION,
    STOPPED,
    TEXT,
    Call,
    Each,
    Tool,
    call,
    mismatches,
)


def serves_every_command(version: Any) -> bool:
    """a release of Kafka of at least 3.7, which the last of kcctl's commands wants"""
    return tuple(int(part) for part in version.split(".")[:2]) >= (3, 7)


def is_unknown_class(message: Any) -> bool:
    """begins with the words by which kcctl knows that it has to list the plugins"""
    return str(message).startswith("Failed to find any class that implements Connector")


def is_plugin(plugin: Any) -> bool:
    """a plugin of one of the types kcctl knows, which fails on others"""
    types = ("source", "sink", "transformation", "converter", "header_converter", "predicate")
    shape = {"class": str, "type": types, "version?": TEXT}
    return not any(mismatches(shape, plugin))


task_state = {"id": int, "state": str, "worker_id": str, "trace?": TEXT}
status = {
    "name": str,
    "type": str,
    "connector": {"state": str, "worker_id": str, "trace?": TEXT},
    "tasks": [task_state],
}
info = {"name": str, "type": str, "config": Each(TEXT), "tasks": [{"connector": str, "task": int}]}
key = {"name": str, "type": str, "required": bool, "default_value": TEXT, "documentation": str, "importance": str}
version = call("GET", "/", reads={"version": serves_every_command, "commit": str, "kafka_cluster_id": str})
listed = call("GET", "/connectors/", reads=[str])
every = call("GET", "/connectors?expand=status", reads=Each({"status": status}))
message = {"message": str}


def describe(name: str, until: Mapping[str, Any], tasks: Mapping[str, Any] | None = None) -> tuple[Call, ...]:
    """`tasks` is what they are to have by then: they hear of a change after it has been answered."""
    path = f"/connectors/{name}"
    return (
        version,
        call("GET", path, reads=info),
        call("GET", f"{path}/status", reads=status, until=until),
        call("GET", f"{path}/config", reads=Each(TEXT)),
        call(
            "GET",
            f"{path}/tasks",
            reads=[{"id": {"connector": str, "task": int}, "config": Each(TEXT)}],
            until=tasks or {},
        ),
        call("GET", f"{path}/topics", reads={name: {"topics": [str]}}, until={f"{name}.topics.0": ...}),
    )


def steer(what: str, code: int, until: Mapping[str, Any]) -> tuple[Call, ...]:
    return (
        call("PUT", f"/connectors/k/{what}", taken=(code,)),
        call("GET", "/connectors/k/status", reads=status, until=until),
    )


def validated(errors: int) -> Mapping[str, Any]:
    # The field of an error is named by its definition, so what has errors has one.
    value = {"value": {"errors": [str]}}
    good = {"value": {"errors": lambda found: not found}}
    config = ({**value, "definition": key}, good)
    return {"error_count": errors, "configs": [config]}


validate = "/connector-plugins/FileStreamSource/config/validate"
named = {"name": "dummy-name", **SOURCE}
KCCTL = Tool(
    name="kcctl",
    source="1.0.0.CR",
    headers={"Accept": "application/json", "Content-Type": "application/json"},
    commands={
        "info": (version,),
        "get connectors, none there": (version, every),
        "apply --dry-run": (call("PUT", validate, named, reads=validated(0)),),
        "apply --dry-run, invalid": (
            call("PUT", validate, {**named, "tasks.max": "0", "errors.tolerance": "some"}, reads=validated(2)),
        ),
        "apply, an unknown class": (
            listed,
            call(
                "POST",
                "/connectors/",
                {"name": "k", "config": {"connector.class": "Nope"}},
                taken=(400, 500),
                reads={"message": is_unknown_class},
            ),
        ),
        "apply, invalid": (
            listed,
            call(
                "POST", "/connectors/", {"name": "k", "config": {**SOURCE, "tasks.max": "0"}}, taken=(400,), reads=ERROR
            ),
        ),
        "apply, created": (
            listed,
            call(
                "POST",
                "/connectors/",
                {"name": "k", "config": SOURCE},
                taken=(201,),
                reads={"name": str, "type": str, "tasks": [dict]},
            ),
        ),
        "apply, updated": (
            listed,
            call("PUT", "/connectors/k/config", {**SOURCE, "tasks.max": 1}, reads={"name": str, "tasks": [dict]}),
        ),
        "apply --name": (
            listed,
            call("PUT", "/connectors/k-sink/config", SINK, taken=(201,), reads={"name": str, "tasks": [dict]}),
            call("GET", "/connectors/k-sink/status", reads=status, until=ONE_TASK),
        ),
        "describe connector --tasks-config": describe("k", ONE_TASK),
        "describe connector, unknown": (
            version,
            call("GET", "/connectors/no", taken=(404,), reads=ERROR),
            version,
            every,
        ),
        "get connectors": (version, every),
        "patch connector": (
            call("GET", "/connectors/k/config", reads=Each(TEXT)),
            call("PUT", "/connectors/k/config", {**SOURCE, "name": "k", "batch.size": "7"}, reads={"name": str}),
            *describe("k", ONE_TASK, {"0.config.batch%2Esize": "7"}),
        ),
        "restart connector": (version, call("POST", "/connectors/k/restart", taken=(204,))),
        "restart connector --tasks all": (
            version,
            call("GET", "/connectors/k/status", reads=status, until=ONE_TASK),
            call(
                "POST",
                "/connectors/k/restart?includeTasks=true&onlyFailed=false",
                taken=(202,),
                reads={**status, "tasks": [{**task_state, "state": "RESTARTING"}]},
            ),
            call("GET", "/connectors/k/status", reads=status, until=ONE_TASK),
        ),
        "restart task": (
            call("POST", "/connectors/k/tasks/0/restart", taken=(204,)),
            call("GET", "/connectors/k/status", reads=status, until=ONE_TASK),
        ),
        "restart connector --tasks failed": (
            call("PUT", "/connectors/broken/config", BROKEN, taken=(201,), reads={"name": str}),
            call(
                "GET",
                "/connectors/broken/status",
                reads={**status, "tasks": [{**task_state, "trace": str}]},
                until=FAILED_TASK,
            ),
            version,
            call(
                "POST",
                "/connectors/broken/restart?includeTasks=true&onlyFailed=true",
                taken=(202,),
                reads={**status, "tasks": [{**task_state, "state": "RESTARTING"}]},
            ),
            call("DELETE", "/connectors/broken", taken=(204,)),
        ),
        "pause connector": steer("pause", 202, {"connector.state": "PAUSED"}),
        "resume connector": steer("resume", 202, ONE_TASK),
        "get offsets": (
            version,
            call(
                "GET",
                "/connectors/k/offsets",
                reads={"offsets": [{"partition": dict, "offset": dict}]},
                until={"offsets.0.offset.position": 8},
            ),
        ),
        "patch offsets, while it runs": (
            version,
            call(
                "PATCH",
                "/connectors/k/offsets",
                {"offsets": [{"partition": SOURCE_PARTITION, "offset": {"position": 4}}]},
                taken=(400,),
                reads=ERROR,
            ),
        ),
        "stop connector": steer("stop", 204, STOPPED),
        "patch offsets": (
            version,
            call(
                "PATCH",
                "/connectors/k/offsets",
                {"offsets": [{"partition": SOURCE_PARTITION, "offset": {"position": 4}}]},
                reads=message,
            ),
            call(
                "GET",
                "/connectors/k/offsets",
                reads={"offsets": [{"partition": dict, "offset": dict}]},
                until={"offsets.0.offset.position": 4},
            ),
        ),
        "patch offsets of a sink": (
            call(
                "GET",
                "/connectors/k-sink/offsets",
                reads={"offsets": [dict]},
                until={"offsets.0.offset.kafka_offset": ...},
            ),
            call("PUT", "/connectors/k-sink/stop", taken=(204,)),
            call("GET", "/connectors/k-sink/status", reads=status, until=STOPPED),
            version,
            call(
                "PATCH",
                "/connectors/k-sink/offsets",
                {"offsets": [{"partition": SINK_PARTITION, "offset": {"kafka_offset": 1}}]},
                reads=message,
            ),
        ),
        "delete offsets": (version, call("DELETE", "/connectors/k/offsets", reads=message)),
        "get plugins": (
            version,
            call("GET", "/connector-plugins?connectorsOnly=false", reads=[is_plugin]),
        ),
        "describe plugin": (version, call("GET", "/connector-plugins/FileStreamSource/config", reads=[key])),
        "describe plugin, unknown": (
            version,
            call("GET", "/connector-plugins/Nope/config", taken=(404,), reads=ERROR),
        ),
        "get loggers": (call("GET", "/admin/loggers/", reads=Each({"level": TEXT}), names_are_data=True),),
        "get logger": (call("GET", "/admin/loggers/root", reads={"level": str}),),
        "patch logger": (call("PUT", "/admin/loggers/a.b", {"level": "DEBUG"}, reads=[str]),),
        "patch logger --scope worker": (
            call("PUT", "/admin/loggers/a.b?scope=worker", {"level": "WARN"}, reads=[str]),
        ),
        "patch logger --scope cluster": (
            version,
            call("PUT", "/admin/loggers/a.b?scope=cluster", {"level": "ERROR"}, taken=(204,)),
            call("GET", "/admin/loggers/a.b", reads={"level": str}, until={"level": "ERROR"}),
        ),
        "delete connector": (
            call("DELETE", "/connectors/k", taken=(204,)),
            call("DELETE", "/connectors/k-sink", taken=(204,)),
        ),
        "delete connector, unknown": (call("DELETE", "/connectors/no", taken=(404,), reads=ERROR),),
    },
)
