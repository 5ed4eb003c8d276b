"""The reference pages, made from the tables the code itself uses

`python docs/generate.py` writes docs/compatibility.md and the tables of settings in docs/configuration.md and
docs/postgres.md, between the lines that begin and end them; `--check` says which page is stale and fails. What is
generated cannot disagree with the program.
"""

import importlib
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from tidemill.core.config import ConfigTable  # noqa: E402  (a script beside the packages it documents)

TABLES = (
    ("Broker", "server.properties of `tidemill broker start`", "tidemill.broker.config", "BROKER_CONFIG"),
    ("Topics", "settings of one topic", "tidemill.broker.topic_config", "TOPIC_CONFIG"),
    ("Connect worker", "properties of `tidemill connect start`", "tidemill.connect.config", "WORKER"),
    ("Connectors", "settings every connector has", "tidemill.connect.config", "CONNECTOR"),
    ("Source connectors", "further settings of source connectors", "tidemill.connect.config", "SOURCE"),
    ("Sink connectors", "further settings of sink connectors", "tidemill.connect.config", "SINK"),
    (
        "Mirror",
        "properties of a flow in the mm2.properties file of `tidemill mirror start`",
        "tidemill.mirror.config",
        "FLOW_TABLE",
    ),
    ("Mirror consumer", "`<alias>.consumer.` properties in that file", "tidemill.mirror.config", "CONSUMER_TABLE"),
    ("Spark job", "properties of `tidemill spark run`", "tidemill.spark_sink.config", "JOB_TABLE"),
)
"""(heading, where the settings are given, module, table in it)."""


CLIENTS = ("confluent-kafka", "aiokafka", "kafka-python", "kcat", "Java")
LIBRARIES = CLIENTS[:3]

FEATURES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "produce and consume: every codec, keys, headers; each reads what the others wrote",
        "test_clients.py::test_what_one_client_writes_every_client_reads",
        CLIENTS[:4],
    ),
    (
        "the same with librdkafka on the other side",
        "test_java_clients.py::test_the_console_tools_and_librdkafka_read_each_other",
        ("confluent-kafka", "Java"),
    ),
    ("records without key and headers", "test_clients.py::test_records_without_key_and_headers", CLIENTS[:4]),
    ("compressed batches stay compressed", "test_clients.py::test_compression_arrives_compressed", CLIENTS[:4]),
    (
        "topics with a codec of their own",
        "test_clients.py::test_a_topic_with_a_codec_of_its_own_holds_only_that",
        CLIENTS[:4],
    ),
    (
        "one group of several libraries, each leading it",
        "test_groups_clients.py::test_three_libraries_share_a_topic",
        LIBRARIES,
    ),
    (
        "a shared group, handed over",
        "test_groups_clients.py::test_kcat_shares_a_topic_and_hands_it_over",
        ("confluent-kafka", "kcat"),
    ),
    (
        "a group goes on where it was",
        "test_java_clients.py::test_a_group_of_the_console_consumer_goes_on_where_it_was",
        ("Java",),
    ),
    (
        "a group survives kill -9 of the broker",
        "test_groups_clients.py::test_a_group_goes_on_after_the_broker_was_killed",
        LIBRARIES,
    ),
    (
        "a consumer goes on under the leader epoch that a kill -9 of the broker began",
        "test_leader_epochs_clients.py::test_librdkafka_goes_on_under_the_new_epoch",
        ("confluent-kafka",),
    ),
    (
        "a consumer goes on under the leader epoch that a kill -9 of the broker began",
        "test_leader_epochs_clients.py::test_the_java_consumer_goes_on_under_the_new_epoch",
        ("Java",),
    ),
    (
        "static members",
        "test_groups_clients.py::test_a_static_member_comes_back_without_a_rebalance",
        ("confluent-kafka",),
    ),
    ("fetch sessions", "test_fetch_sessions_clients.py::test_kafka_python_reads_through_a_session", ("kafka-python",)),
    (
        "fetch sessions",
        "test_fetch_sessions_clients.py::test_kafkas_console_consumer_reads_through_a_session",
        ("Java",),
    ),
    (
        "idempotent producer, kill -9 of the broker: nothing lost, nothing twice",
        "test_broker_crash.py::test_no_acknowledged_record_is_lost_or_duplicated",
        ("confluent-kafka",),
    ),
    (
        "idempotent producer, answers lost and more sent before it asks again: taken for stored",
        "test_late_retries.py::test_librdkafka",
        ("confluent-kafka",),
    ),
    (
        "idempotent producer, answers lost and more sent before it asks again: taken for stored",
        "test_late_retries.py::test_java",
        ("Java",),
    ),
    (
        "idempotent producer, perf tools",
        "test_java_clients.py::test_the_perf_tools_move_what_they_are_asked_to",
        ("Java",),
    ),
    (
        "every record's partition and offset, as the verifiable tools see it",
        "test_java_clients.py::test_the_verifiable_tools_agree_on_every_record",
        ("Java",),
    ),
    ("topic settings", "test_admin_clients.py::test_settings_of_a_topic_with_confluent_kafka", ("confluent-kafka",)),
    (
        "settings and resources",
        "test_admin_clients.py::test_settings_and_resources_with_kafka_python",
        ("kafka-python",),
    ),
    (
        "topics, settings and groups",
        "test_kafka_tools.py::test_topics_settings_and_groups_are_managed_with_kafkas_tools",
        ("Java",),
    ),
    ("log folders", "test_admin_clients.py::test_log_folders_with_kafka_python", ("kafka-python",)),
    (
        "replicas, leaders, quorum",
        "test_admin_clients.py::test_replicas_leaders_and_the_quorum_with_kafka_python",
        ("kafka-python",),
    ),
    (
        "reassignments, elections, log folders, quorum",
        "test_kafka_tools.py::test_the_node_is_looked_after_with_kafkas_tools",
        ("Java",),
    ),
    (
        "a cluster in two racks: placement, elections, throttled moves and taking them back, settings of one broker",
        "test_kafka_tools_cluster.py::test_a_cluster_is_looked_after_with_kafkas_tools",
        ("Java",),
    ),
    (
        "reading at a replica in the client's rack, leaders and followers killed meanwhile",
        "test_follower_fetching.py::test_consumers_read_in_their_rack_and_go_elsewhere_when_that_is_away",
        ("confluent-kafka",),
    ),
    (
        "certificates on both sides at every listener of a cluster, replaced while it runs",
        "test_cluster_tls.py::test_a_cluster_of_certificates",
        ("confluent-kafka",),
    ),
    (
        "dump of our files: metadata log, its snapshots, committed offsets",
        "test_kafka_tools.py::test_our_metadata_and_group_files_are_read_by_kafkas_dump_tool",
        ("Java",),
    ),
    (
        "error codes of admin answers beside Apache Kafka's own, frame by frame",
        "test_admin_kafka.py::test_every_answer_has_the_codes_of_kafkas_answer",
        (),
    ),
    (
        "whole answers about topics, offsets, records and the cluster beside Apache Kafka's own, field by field",
        "test_answers_kafka.py::test_every_answer_is_kafkas",
        (),
    ),
)
"""(what, the test that shows it, with which clients)."""

BEGIN, END = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"

REMOVED_IN_KAFKA_4 = frozenset(range(4, 8))
"""Keys that brokers used among themselves before KRaft."""


def configuration() -> str:
    """The page of all settings, its tables as the programs parse with them now."""
    head = (DOCS / "configuration.md").read_text(encoding="utf-8").partition(BEGIN)[0]
    parts = [f"{head}{BEGIN}"]
    for heading, where, module, name in TABLES:
        rows = getattr(importlib.import_module(module), name)
        table = rows if isinstance(rows, ConfigTable) else ConfigTable(row.key for row in rows)
        parts += [f"## {heading}", "", where[0].upper() + where[1:] + ".", "", table.markdown(), ""]
        if heading == "Broker":
            live = ", ".join(f"`{key.name}`" for key in table if key.dynamic)
            parts += [f"While the broker runs, `kafka-configs --entity-type brokers` can change {live}.", ""]
    return "\n".join([*parts, END])


CLIENT_FAULTS = (
    "kafka-python 3.0.12: when the time of a `poll` is over between the leader's JoinGroup and its SyncGroup of a "
    "rebalance caused by new metadata, the consumer takes no assignment, sends no heartbeat and is silent until its "
    "session ends. Polls of some seconds until the first assignment keep clear of it.",
)


def compatibility() -> str:
    """The page of served APIs and verified clients."""
    from tidemill.broker.routes import ROUTES
    from tidemill.core.wire.api import ApiKey, api

    rows = ["| key | API | advertised | served | flexible from |", "|---|---|---|---|---|"]
    for route in sorted(ROUTES, key=lambda route: route.key):
        low = route.min_version if route.advertised_min is None else route.advertised_min
        description = api(route.key)
        rows.append(
            f"| {int(route.key)} | {description.name} | {low}–{route.max_version} | "
            f"{route.min_version}–{route.max_version} | "
            f"{description.flexible_from if description.flexible_from <= description.max_version else 'never'} |"
        )
    served = {route.key for route in ROUTES}
    missing = [f"{key.name} ({key.value})" for key in ApiKey if key not in served and key not in REMOVED_IN_KAFKA_4]
    clients = [
        f"| feature | {' | '.join(CLIENTS)} | verified by `tests/integration/` |",
        f"|---|{'---|' * len(CLIENTS)}---|",
    ]
    for feature, test, with_clients in FEATURES:
        cells = ("✓" if client in with_clients else "" for client in CLIENTS)
        clients.append(f"| {feature} | {' | '.join(cells)} | `{test}` |")
    return "\n".join(
        [
            "# Compatibility",
            "",
            "Generated by `python docs/generate.py` from the broker's routes and the worker's transformations.",
            "",
            "## APIs",
            "",
            *rows,
            "",
            f"Not served and not advertised: {', '.join(missing)}.",
            "",
            "## Clients",
            "",
            "Every ✓ is a test that runs in CI with the real client; an empty cell is not tested. "
            "Java stands for Apache Kafka's console, perf and admin tools, which CI fetches with Maven.",
            "",
            *clients,
            "",
            "Faults of clients that a test had to go round, seen against Apache Kafka too:",
            "",
            *(f"- {fault}" for fault in CLIENT_FAULTS),
            "",
            *connect_tools(),
            *transformations(),
        ]
    )


TOOL_DIFFERENCES = {
    "kcctl": "a task's configuration has no `task.class`; the plugins and loggers listed are others",
    "Terraform provider Mongey/kafka-connect": "a read is answered also while tasks move, where Apache's "
    "worker may answer 500 and the provider asks again",
    "Strimzi operator": "the loggers listed are others",
}
"""What a user of the tool sees otherwise than with Apache's worker."""


def connect_tools() -> Iterator[str]:
    """The section of the tools that drive a Connect worker."""
    from tests.golden.record_connect_tools import TOOLS

    yield "## Tools for Kafka Connect"
    yield ""
    yield (
        "The calls of each tool, command by command as its source has them, go to a worker of ours and to one of "
        "Apache Kafka 4.3. Each answer has a status the tool takes and the fields it reads, of the types as which "
        "it reads them; and statuses, texts of errors, fields and types of both workers are the same but for the "
        "differences named. The tools themselves are not run. Verified by `tests/connect/test_tools_golden.py` "
        "with recorded answers, which `tests/integration/test_connect_tools_kafka.py` compares with Apache's "
        "worker."
    )
    yield ""
    yield "| tool | source read | commands | calls | differences |"
    yield "|---|---|---|---|---|"
    for tool in TOOLS:
        commands, calls = "; ".join(tool.commands), "<br>".join(f"`{each}`" for each in tool.endpoints())
        yield f"| {tool.name} | {tool.source} | {commands} | {calls} | {TOOL_DIFFERENCES[tool.name]} |"
    yield ""
    yield (
        "`GET /` names the release of Apache Connect whose API this is as `version`, since kcctl refuses commands "
        "by it; our own version is in `commit`. Fields of ours that Apache's answers do not have: `warnings`, "
        "`warning_count`, `problem`, `facts` and `failure`. The tools skip fields they do not know, and where one "
        "reads a map of strings, the state of a connector, there are only strings."
    )
    yield ""


def transformations() -> Iterator[str]:
    """The section of Connect's transformations, one row for keys and values."""
    from tidemill.connect.settings import setting_names
    from tidemill.connect.transforms.registry import DEBEZIUM, OF_DEBEZIUM, OF_KAFKA, PACKAGE

    yield "## Transformations and predicates of Kafka Connect"
    yield ""
    yield (
        f"Under `{PACKAGE}`, as of Kafka 4.3; `*` stands for two classes, `$Key` and `$Value`. "
        "What each makes of records is compared with recorded answers of Kafka's own classes in "
        "`tests/connect/transforms/`."
    )
    yield ""
    yield "| class | kind | options |"
    yield "|---|---|---|"
    for plugin in OF_KAFKA:
        if not plugin.name.endswith("$Key"):
            name = plugin.name.removeprefix(PACKAGE).replace("$Value", "*")
            options = ", ".join(f"`{each}`" for each in setting_names(plugin.config))
            yield f"| `{name}` | {plugin.kind.value} | {options} |"
    yield ""
    yield "## Transformations of Debezium"
    yield ""
    yield (
        f"Under `{DEBEZIUM}`, as of Debezium 3.6, compared with recorded answers of Debezium's own classes in "
        "`tests/connect/transforms/`. Its other transformations are not there; they are refused by name."
    )
    yield ""
    yield "| class | options | refused by name |"
    yield "|---|---|---|"
    for plugin in OF_DEBEZIUM:
        options = ", ".join(f"`{each}`" for each in setting_names(plugin.config))
        refused = ", ".join(f"`{each.name}`" for each in plugin.unsupported)
        yield f"| `{plugin.name.removeprefix(DEBEZIUM)}` | {options} | {refused} |"
    yield ""


def postgres() -> str:
    """The page of the PostgreSQL connector with its settings as they are now."""
    text = (DOCS / "postgres.md").read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    return "".join([head, BEGIN, *postgres_settings(), END, rest.partition(END)[2]])


def postgres_settings() -> Iterator[str]:
    """Lines of Markdown: what the connector reads, refuses, and knows without doing anything."""
    from tidemill.connect.entities import ConfigKeyInfo
    from tidemill.connect.plugins.postgres.source import postgres_source
    from tidemill.connect.validation import key_infos

    groups: dict[str, list[ConfigKeyInfo]] = {}
    for info in key_infos(postgres_source):
        groups.setdefault(info.group or "", []).append(info)
    fields = {field.alias: field for field in postgres_source.config.model_fields.values()}
    for group, infos in groups.items():
        yield f"\n### {group}\n\n| setting | type | default | what |\n|---|---|---|---|\n"
        for info in infos:
            values = [f"`{each}`" for each in typing.get_args(fields[info.name].annotation) if isinstance(each, str)]
            among = f" One of {', '.join(values)}." if len(values) > 1 else ""
            shown = "" if info.type == "PASSWORD" else info.default_value
            default = "*needed*" if info.required else f"`{shown}`" if shown else "empty"
            yield f"| `{info.name}` | {info.type.lower()} | {default} | {cell(info.documentation + among)} |\n"
    yield "\n### Refused\n\nA value in the second column asks for what happens anyway and passes.\n\n"
    yield "| setting | passes | instead |\n|---|---|---|\n"
    for each in postgres_source.unsupported:
        name = f"{each.name}*" if each.name.endswith(".") else each.name
        yield f"| `{name}` | {', '.join(f'`{value}`' for value in each.accepted)} | {cell(each.why)} |\n"
    names = ", ".join(f"`{name}*`" if name.endswith(".") else f"`{name}`" for name in postgres_source.ignored)
    yield f"\n### Without effect\n\nThey tune the Java program and change nothing about records: {names}.\n\n"


def cell(text: str) -> str:
    """A text that does not end the table's cell."""
    return text.replace("|", "\\|")


def main() -> int:
    """Write the pages, or check them."""
    stale = []
    pages = (("configuration.md", configuration()), ("compatibility.md", compatibility()), ("postgres.md", postgres()))
    for name, text in pages:
        path = DOCS / name
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    if stale:
        print(f"stale: {', '.join(stale)}; run python docs/generate.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
