"""Specifications cross the socket unchanged"""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.connect.api import ConverterSpec, PluginKind
from tidemill.connect.problem import Problem
from tidemill.connect.remote import plugin_pb2 as pb
from tidemill.connect.remote.messages import (
    problem_from_message,
    report_to_message,
    spec_from_message,
    spec_to_message,
)
from tidemill.connect.task_spec import InitialState, TaskId, TaskSpec

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MAPS = st.dictionaries(TEXT, TEXT, max_size=3)
CONVERTERS = st.builds(ConverterSpec, kind=TEXT, options=MAPS)
SPECS = st.builds(
    TaskSpec,
    task=st.builds(TaskId, TEXT, st.integers(0, 1 << 30)),
    incarnation=st.integers(0, 1 << 60),
    plugin=TEXT,
    kind=st.sampled_from(PluginKind),
    config=MAPS,
    bootstrap_servers=TEXT,
    key_converter=CONVERTERS,
    value_converter=CONVERTERS,
    offsets_topic=TEXT,
    worker_id=TEXT,
    client_config=MAPS,
    producer_config=MAPS,
    consumer_config=MAPS,
    offset_flush_interval_ms=st.integers(1, 1 << 40),
    offset_flush_timeout_ms=st.integers(1, 1 << 40),
    environment=TEXT,
    initial_state=st.sampled_from(InitialState),
)


@given(SPECS)
def test_a_specification_comes_back(spec: TaskSpec) -> None:
    """Every field survives serialisation."""
    data = spec_to_message(spec).SerializeToString()
    assert spec_from_message(pb.TaskSpec.FromString(data)) == spec


def test_every_field_has_its_place_in_the_message() -> None:
    """A field added on one side and forgotten on the other would be lost in silence."""
    fields = set(TaskSpec.__dataclass_fields__) - {"task"} | {"connector", "task"}
    assert {field.name for field in pb.TaskSpec.DESCRIPTOR.fields} == fields


PROBLEMS = st.builds(
    Problem,
    message=TEXT,
    since_ms=st.integers(0, 1 << 50),
    attempts=st.integers(0, 1 << 30),
    next_try_ms=st.none() | st.integers(0, 1 << 50),
)


@given(st.binary(max_size=8), st.none() | PROBLEMS)
def test_a_problem_comes_back(facts: bytes, problem: Problem | None) -> None:
    report = pb.Report.FromString(report_to_message(facts, problem).SerializeToString())
    assert report.facts_json == facts
    assert problem_from_message(report) == problem
