"""Terms of office in the config topic: what counts, who hears of it, and what is written over"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from tidemill.connect.herder.terms import NUMBER_MAX, Term, Terms

KEY = b"session-key"


@dataclass
class Topic:
    """A config topic with one reader who is up to date."""

    terms: Terms = field(default_factory=Terms)
    records: list[tuple[int, bytes, bytes | None, Term | None]] = field(default_factory=list)
    end: int = 0

    def write(self, key: bytes, value: bytes | None, term: Term | None = None) -> bool:
        offset, self.end = self.end, self.end + 1
        self.records.append((offset, key, value, term))
        return self.terms.take(key, value, term, offset)

    def take_office(self, life: str) -> Term:
        term = self.terms.next(life)
        assert term is not None
        assert self.write(KEY, life.encode(), term)
        return term

    def read_anew(self, *, compacted: bool = False) -> tuple[Terms, dict[bytes, bytes]]:
        """A reader who begins now, and what it takes for true."""
        last = {key: offset for offset, key, _, _ in self.records}
        terms, truth = Terms(), {}
        for offset, key, value, term in self.records:
            if (not compacted or last[key] == offset) and terms.take(key, value, term, offset):
                truth.pop(key, None)
                if value is not None:
                    truth[key] = value
        return terms, truth

    def repair(self, term: Term) -> Sequence[tuple[bytes, bytes | None]]:
        repairs = self.terms.repairs()
        for key, value in repairs:
            assert self.write(key, value, term)
        return repairs


def test_what_names_no_term_counts_as_ever() -> None:
    topic = Topic()
    assert topic.write(b"connector-a", b"1")
    topic.take_office("ours")
    assert topic.write(b"connector-a", b"2")
    assert topic.write(b"", None) and topic.terms.take(None, b"x", None, topic.end)


def test_a_leader_that_was_replaced_writes_nothing_that_counts() -> None:
    topic = Topic()
    old = topic.take_office("old")
    assert topic.write(b"connector-a", b"1", old)
    new = topic.take_office("new")
    assert topic.terms.holds(new) and not topic.terms.holds(old)
    assert not topic.write(b"connector-a", b"zombie", old)
    assert not topic.write(KEY, b"zombie", old)
    assert topic.write(b"connector-a", b"2", new)


def test_of_two_that_take_office_at_the_same_moment_one_is_in_office_for_every_reader() -> None:
    for first, second in (("a", "b"), ("b", "a")):
        topic = Topic()
        terms = [term for life in (first, second) if (term := topic.terms.next(life)) is not None]
        for term in terms:
            topic.write(KEY, term.life.encode(), term)
        assert [topic.terms.holds(term) for term in terms] == [term.life == "b" for term in terms]
        loser = min(terms)
        assert not topic.write(b"connector-a", b"1", loser)


def test_a_write_knows_whether_it_counted() -> None:
    topic = Topic()
    old = topic.take_office("old")
    before = topic.end
    topic.write(b"connector-a", b"1", old)
    topic.take_office("new")
    after = topic.end
    topic.write(b"connector-b", b"1", old)
    assert topic.terms.counted(old, before)
    assert not topic.terms.counted(old, after)


def test_taking_office_again_makes_what_was_written_before_count_no_less() -> None:
    topic = Topic()
    old = topic.take_office("life")
    topic.take_office("other")
    again = topic.take_office("life")
    assert again > old and topic.terms.counted(again, topic.end)
    topic.write(b"connector-a", b"1", again)
    assert topic.terms.counted(again, topic.end - 1)


def test_a_leader_of_javas_ends_a_term_of_ours() -> None:
    topic = Topic()
    ours = topic.take_office("ours")
    assert topic.write(b"connector-a", b"1", ours)
    at = topic.end
    assert topic.write(KEY, b"java")
    assert not topic.terms.holds(ours)
    assert not topic.write(b"connector-a", b"zombie", ours)
    assert topic.terms.counted(ours, at - 1) and not topic.terms.counted(ours, at + 1)
    assert topic.write(b"connector-a", b"2")
    again = topic.take_office("ours")
    assert topic.terms.holds(again) and topic.write(b"connector-a", b"3", again)


def test_a_key_of_javas_before_any_term_ends_nothing() -> None:
    topic = Topic()
    assert topic.write(KEY, b"java")
    ours = topic.take_office("ours")
    assert topic.terms.holds(ours)


def test_what_was_left_out_is_written_over_with_what_is_true() -> None:
    topic = Topic()
    old = topic.take_office("old")
    topic.write(b"connector-a", b"1", old)
    topic.write(b"target-state-a", b"paused", old)
    new = topic.take_office("new")
    topic.write(b"connector-a", b"zombie", old)
    topic.write(b"connector-b", b"zombie", old)
    topic.write(b"target-state-a", None, old)
    topic.write(KEY, b"zombie", old)
    assert topic.terms.needs_repair
    assert topic.repair(new) == (
        (b"connector-a", b"1"),
        (b"connector-b", None),
        (b"target-state-a", b"paused"),
        (KEY, b"new"),
    )
    assert not topic.terms.needs_repair and topic.terms.repairs() == ()
    assert topic.read_anew(compacted=True)[1] == topic.read_anew()[1]


def test_what_the_leader_has_written_over_already_needs_no_repair() -> None:
    topic = Topic()
    old = topic.take_office("old")
    new = topic.take_office("new")
    topic.write(b"connector-a", b"zombie", old)
    topic.write(b"connector-a", b"2", new)
    assert not topic.terms.needs_repair


@pytest.mark.parametrize("key", [b"restart-connector-a", b"logger-cluster-root"])
def test_requests_are_not_repeated(key: bytes) -> None:
    topic = Topic()
    old = topic.take_office("old")
    topic.write(key, b"1", old)
    topic.take_office("new")
    assert not topic.write(key, b"2", old)
    assert not topic.terms.needs_repair


@pytest.mark.parametrize("spoiled", [b"commit-a-b", b"task-a-b-1", b"task-a-b-7"])
def test_tasks_are_written_again_with_their_commit_last(spoiled: bytes) -> None:
    topic = Topic()
    old = topic.take_office("old")
    for number in (b"0", b"1", b"2"):
        topic.write(b"task-a-b-" + number, number, old)
    topic.write(b"commit-a-b", b'{"tasks":2}', old)
    new = topic.take_office("new")
    topic.write(spoiled, b'{"tasks":0}', old)
    repairs = topic.repair(new)
    tasks = ((b"task-a-b-0", b"0"), (b"task-a-b-1", b"1"), (b"commit-a-b", b'{"tasks":2}'))
    assert repairs[-1] == tasks[-1]
    assert dict(repairs) == dict(tasks) | ({spoiled: None} if spoiled == b"task-a-b-7" else {})
    assert not topic.terms.needs_repair


def test_tasks_that_only_the_zombie_wrote_go_away() -> None:
    topic = Topic()
    old = topic.take_office("old")
    new = topic.take_office("new")
    topic.write(b"task-a-0", b"x", old)
    topic.write(b"commit-a", b'{"tasks":1}', old)
    assert dict(topic.repair(new)) == {b"task-a-0": None, b"commit-a": None}


def test_a_hostile_number_of_tasks_costs_nothing() -> None:
    topic = Topic()
    old = topic.take_office("old")
    topic.write(b"commit-a", b'{"tasks":2147483647}', old)
    new = topic.take_office("new")
    topic.write(b"commit-a", b'{"tasks":0}', old)
    assert topic.repair(new) == ((b"commit-a", b'{"tasks":2147483647}'),)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"7",
        b":life",
        b"0:life",
        b"-1:life",
        b"\xff:life",
        b"1" * 17 + b":life",
        b"9" * 99 + b":",
        b"1:" + b"x" * 200,
    ]
    + [str(NUMBER_MAX + 1).encode() + b":life"],
)
def test_a_header_that_nobody_of_ours_writes_is_none(header: bytes) -> None:
    assert Term.decoded(header) is None


def test_the_last_number_there_is_ends_nothing_but_the_taking_of_office() -> None:
    topic = Topic()
    last = Term(NUMBER_MAX, "hostile")
    assert topic.write(b"connector-a", b"1", last)
    assert topic.terms.next("ours") is None
    assert topic.write(b"connector-a", b"2")


def test_a_term_is_read_as_it_was_written() -> None:
    for term in (Term(1, "a"), Term(NUMBER_MAX, "0123456789abcdef" * 2)):
        assert Term.decoded(term.encoded()) == term


@pytest.mark.parametrize("seed", range(200))
def test_every_reader_believes_the_same_whenever_it_begins(seed: int) -> None:
    """Leaders come and go and zombies write; after each repair a reader of the compacted topic knows what all know."""
    random = Random(seed)
    topic = Topic()
    truth: dict[bytes, bytes] = {}
    lives = [topic.take_office("life-0")]
    keys = [b"connector-a", b"connector-b", b"target-state-a", b"task-a-0", b"task-a-1", b"commit-a", KEY]
    for turn in range(60):
        leader = max(lives)
        if random.random() < 0.1:
            lives.append(topic.take_office(f"life-{random.randrange(1_000)}-{turn}"))
            leader = lives[-1]
        writer = random.choice([leader, *lives])
        key = random.choice(keys)
        value = None if random.random() < 0.2 and key != KEY else b'{"tasks":%d}' % random.randrange(3)
        counts = topic.write(key, value, writer)
        assert counts == (writer == leader)
        if random.random() < 0.3:
            topic.repair(leader)
            truth = topic.read_anew()[1]
            assert topic.read_anew(compacted=True)[1] == truth
            assert topic.terms.holds(leader)
    topic.repair(max(lives))
    terms, truth = topic.read_anew()
    assert topic.read_anew(compacted=True)[1] == truth
    assert terms.current == topic.terms.current and not topic.terms.needs_repair
