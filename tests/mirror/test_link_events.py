"""Every event and action travels between the machine and its shell, and what they hold is named as Kafka names it."""

import ast
import functools
import inspect
import typing

import pytest

from tidemill.mirror import flow, link
from tidemill.mirror.config import parse_mirror_config
from tidemill.mirror.link_events import Action, Event, Reset


@functools.cache  # before 3.11.5 a traceback that is printed meanwhile, by the collector, breaks ast.parse (gh-106905)
def matched(module: object) -> set[str]:
    """Names of the classes that a module takes apart."""
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    return {
        node.cls.id for node in ast.walk(tree) if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name)
    }


@pytest.mark.parametrize("kind", typing.get_args(Event), ids=lambda kind: kind.__name__)
def test_the_machine_hears_every_event(kind: type) -> None:
    assert kind.__name__ in matched(link)


@pytest.mark.parametrize("kind", typing.get_args(Action), ids=lambda kind: kind.__name__)
def test_the_flow_carries_out_every_action(kind: type) -> None:
    assert kind.__name__ in matched(flow)


@pytest.mark.parametrize("word", ["earliest", "latest", "none"])
def test_a_reset_is_chosen_by_the_word_that_consumers_use(word: str) -> None:
    text = {"clusters": "A, B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1"}
    config = parse_mirror_config({**text, "A.consumer.auto.offset.reset": word})
    assert config.clusters["A"].reset is Reset(word)
