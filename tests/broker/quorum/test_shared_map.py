"""Maps that share what did not change, beside plain dictionaries."""

import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping

import pytest

from tidemill.broker.quorum.shared_map import SHARD_ENTRIES, SharedMap


@pytest.mark.parametrize("seed", range(8))
def test_it_is_a_dictionary_at_every_step_and_stays_what_it_was(seed: int) -> None:
    rng = random.Random(seed)
    model: dict[str, int] = {}
    shared: SharedMap[str, int] = SharedMap()
    kept: list[tuple[SharedMap[str, int], dict[str, int]]] = []
    for _ in range(12):
        draft = shared.draft()
        before = (shared, dict(model))
        for _ in range(rng.choice((1, 3, 50, SHARD_ENTRIES * 3))):
            key = str(rng.randrange(2000))
            if key in model and rng.random() < 0.3:
                del draft[key], model[key]
            else:
                draft[key] = model[key] = rng.randrange(10**9)
        assert (draft.get(key), key in draft, len(draft)) == (model.get(key), key in model, len(model))
        assert sorted(draft) == sorted(model)
        shared = draft.freeze()
        kept.append((shared, dict(model)))
        old = before[1]
        assert shared.changed_since(before[0]) == {
            each for each in old.keys() | model.keys() if old.get(each) != model.get(each)
        }
    for frozen, expected in kept:
        assert frozen == expected
        assert len(frozen) == len(expected)
        assert sorted(frozen) == sorted(expected)
        assert dict(frozen.items()) == expected
        assert sorted(frozen.values()) == sorted(expected.values())
        assert all(frozen[key] == frozen.get(key) == value and key in frozen for key, value in expected.items())
        assert frozen.get("missing") is None
        assert "missing" not in frozen


def test_a_draft_that_goes_on_after_it_was_frozen_leaves_the_frozen_map_alone() -> None:
    draft = SharedMap({"a": 1}).draft()
    draft["b"] = 2
    frozen = draft.freeze()
    draft["b"] = 3
    del draft["a"]
    assert frozen == {"a": 1, "b": 2}
    assert draft.freeze() == {"b": 3}


def test_a_missing_key_is_an_error() -> None:
    shared: Mapping[str, int] = SharedMap({"a": 1})
    with pytest.raises(KeyError):
        shared["b"]
    with pytest.raises(TypeError):
        hash(shared)


def test_a_change_copies_little_of_much() -> None:
    before = SharedMap({str(number): number for number in range(20_000)})
    tracemalloc.start()
    try:
        draft = before.draft()
        draft["1"] = -1
        after = draft.freeze()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after.changed_since(before) == {"1"}
    assert peak < 30_000, "a dictionary of 20 000 keys takes a megabyte"


def test_the_order_of_its_keys_is_the_same_in_every_process() -> None:
    program = (
        "from tidemill.broker.quorum.shared_map import SharedMap\n"
        "draft = SharedMap({f'topic-{n}': n for n in range(1000)}).draft()\n"
        "del draft['topic-7']\n"
        "draft['again'] = 1\n"
        "print(list(draft.freeze()), list(draft.freeze().items()))"
    )
    orders = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(orders) == 1
