"""The judge, with each kind of fault planted in a history that has none"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tests.faults import checker, history
from tests.faults.history import Event

T = "t 0"


def events(lines: Sequence[str]) -> list[Event]:
    """Lines get their moments in the order in which they stand: `KIND REST` becomes `KIND MOMENT REST`."""
    return [
        history.parse(f"{kind} {moment} {rest}") for moment, line in enumerate(lines) for kind, rest in [split(line)]
    ]


def split(line: str) -> tuple[str, str]:
    kind, _, rest = line.partition(" ")
    return kind, rest


@dataclass
class Story:
    """A writer of five records and a reader of all of them, in order; tests change a line."""

    writer: list[str] = field(
        default_factory=lambda: [
            "writer a 1",
            *(f"w {T} {number}" for number in range(5)),
            *(f"a {T} {number} {number}" for number in range(5)),
            "end 0",
        ]
    )
    reader: list[str] = field(
        default_factory=lambda: [
            "reader g one",
            f"+ {T}",
            *(f"r {T} {number} a {number}" for number in range(5)),
            f"c {T} 5",
            "end 0",
        ]
    )
    final: list[str] = field(default_factory=lambda: [f"r {T} {number} a {number}" for number in range(5)])

    def judged(self, *others: Sequence[str]) -> checker.Findings:
        """Others are further members of the group, whose moments are their own."""
        members = [events(self.reader), *map(events, others)]
        return checker.check({"a": events(self.writer)}, {"g": members}, events(self.final))

    def replace(self, which: list[str], line: str, *by: str) -> None:
        """Another line, or none, in that place."""
        index = which.index(line)
        which[index : index + 1] = by


@pytest.fixture
def story() -> Story:
    return Story()


def test_nothing_is_found_where_nothing_is_wrong(story: Story) -> None:
    findings = story.judged()
    assert findings.violations == {}
    assert findings.counts["acknowledged"] == findings.counts["there in the end"] == findings.counts["read"] == 5


def test_an_acknowledged_record_that_is_not_there_is_lost(story: Story) -> None:
    story.replace(story.final, f"r {T} 4 a 4")
    assert story.judged().violations == {"lost": 1, "vanished": 1}


def test_a_record_at_another_offset_than_acknowledged_has_moved(story: Story) -> None:
    story.replace(story.writer, f"a {T} 4 4", f"a {T} 4 7")
    assert story.judged().violations == {"moved": 1}


def test_a_record_that_is_there_twice_is_doubled(story: Story) -> None:
    story.final.append(f"r {T} 5 a 4")
    assert story.judged().violations == {"doubled": 1, "unseen": 1}


def test_without_idempotence_a_record_may_be_there_twice(story: Story) -> None:
    story.replace(story.writer, "writer a 1", "writer a 0")
    story.final.append(f"r {T} 5 a 4")
    story.replace(story.reader, f"r {T} 4 a 4", f"r {T} 4 a 4", f"r {T} 5 a 4")
    findings = story.judged()
    assert findings.violations == {}
    assert findings.counts["repeated"] == 1


def test_the_acknowledged_offset_may_be_that_of_the_second_copy(story: Story) -> None:
    story.replace(story.writer, "writer a 1", "writer a 0")
    story.replace(story.writer, f"a {T} 4 4", f"a {T} 4 5")
    story.final.append(f"r {T} 5 a 4")
    story.replace(story.reader, f"r {T} 4 a 4", f"r {T} 4 a 4", f"r {T} 5 a 4")
    assert story.judged().violations == {}


def test_an_offset_that_was_not_told_may_be_any(story: Story) -> None:
    story.replace(story.writer, f"a {T} 4 4", f"a {T} 4 -1")
    assert story.judged().violations == {}


def test_records_of_one_writer_stand_in_its_order(story: Story) -> None:
    for which in (story.final, story.reader):
        story.replace(which, f"r {T} 3 a 3", f"r {T} 3 a 4")
        which.remove(f"r {T} 4 a 4")
        which.insert(which.index(f"r {T} 3 a 4") + 1, f"r {T} 4 a 3")
    story.replace(story.writer, f"a {T} 3 3", f"a {T} 3 4")
    story.replace(story.writer, f"a {T} 4 4", f"a {T} 4 3")
    assert story.judged().violations == {"reordered": 1}


@pytest.mark.parametrize(("idempotent", "violations"), [(1, {"reordered": 1}), (0, {})])
def test_without_idempotence_what_has_failed_may_come_late(
    story: Story, idempotent: int, violations: dict[str, int]
) -> None:
    story.replace(story.writer, "writer a 1", f"writer a {idempotent}")
    for which in (story.final, story.reader):
        story.replace(which, f"r {T} 3 a 3", f"r {T} 3 a 4")
        which.remove(f"r {T} 4 a 4")
        which.insert(which.index(f"r {T} 3 a 4") + 1, f"r {T} 4 a 3")
    story.replace(story.writer, f"a {T} 3 3", f"x {T} 3 Timeout")
    story.replace(story.writer, f"a {T} 4 4", f"a {T} 4 3")
    findings = story.judged()
    assert findings.violations == violations
    assert findings.counts["late"] == 1 - idempotent


@pytest.mark.parametrize("record", ["a 77", "b 0", "? 0"])
def test_a_record_that_nobody_wrote_is_a_phantom(story: Story, record: str) -> None:
    story.final.append(f"r {T} 5 {record}")
    assert story.judged().violations == {"phantom": 1, "unseen": 1}


def test_a_record_in_a_partition_that_it_was_not_written_to_is_a_phantom(story: Story) -> None:
    story.final.append("r t 1 0 a 4")
    assert story.judged().violations["phantom"] == 1


def test_a_phantom_that_was_read_and_is_gone_is_found(story: Story) -> None:
    story.replace(story.reader, f"r {T} 4 a 4", f"r {T} 4 a 4", f"r {T} 5 b 1")
    assert story.judged().violations == {"phantom": 1, "vanished": 1}


def test_an_aborted_record_that_is_there_is_found(story: Story) -> None:
    story.replace(story.writer, f"a {T} 4 4", f"z {T} 4")
    assert story.judged().violations == {"aborted": 1}


def test_an_offset_that_was_read_with_another_record_has_changed(story: Story) -> None:
    story.replace(story.reader, f"r {T} 4 a 4", f"r {T} 4 a 3")
    assert story.judged().violations == {"changed": 1, "unseen": 1}


def test_a_reader_that_goes_back_without_a_reason_is_found(story: Story) -> None:
    story.replace(story.reader, f"r {T} 3 a 3", f"r {T} 3 a 3", f"r {T} 1 a 1", f"r {T} 2 a 2", f"r {T} 3 a 3")
    assert story.judged().violations == {"backwards": 1}


def test_a_reader_that_leaves_a_record_out_is_found(story: Story) -> None:
    story.replace(story.reader, f"r {T} 3 a 3")
    assert story.judged().violations == {"skipped": 1, "unseen": 1}


def test_offsets_without_a_record_may_be_passed_over(story: Story) -> None:
    for which in (story.final, story.reader):
        story.replace(which, f"r {T} 4 a 4", f"r {T} 9 a 4")
    story.replace(story.writer, f"a {T} 4 4", f"a {T} 4 9")
    assert story.judged().violations == {}


def test_a_partition_that_is_given_again_is_read_again_from_what_was_committed(story: Story) -> None:
    again = (f"- {T}", f"+ {T}", f"r {T} 2 a 2", f"r {T} 3 a 3")
    story.replace(story.reader, f"r {T} 3 a 3", f"r {T} 3 a 3", f"c {T} 2", *again)
    assert story.judged().violations == {}


def test_a_reader_that_begins_before_what_was_committed_is_found(story: Story) -> None:
    again = (f"- {T}", f"+ {T}", f"r {T} 2 a 2", f"r {T} 3 a 3")
    story.replace(story.reader, f"r {T} 3 a 3", f"r {T} 3 a 3", f"c {T} 4", *again)
    assert story.judged().violations == {"set back": 1}


def test_an_older_commit_that_a_client_has_sent_again_behind_a_newer_one_counts(story: Story) -> None:
    again = (f"- {T}", f"+ {T}", f"r {T} 2 a 2", f"r {T} 3 a 3")
    story.replace(story.reader, f"r {T} 3 a 3", f"r {T} 3 a 3", f"c {T} 4", f"c {T} 2", *again)
    assert story.judged().violations == {}
    story.replace(story.reader, f"c {T} 2", f"c {T} 3")
    assert story.judged().violations == {"set back": 1}


def test_what_another_member_has_committed_counts_from_when_the_partition_changes_hands(story: Story) -> None:
    late = ["reader g two", *[f"e {number}" for number in range(20)], f"+ {T}", f"r {T} 3 a 3", f"r {T} 4 a 4", "end 0"]
    assert story.judged(late).violations == {"set back": 1}
    early = ["reader g two", f"+ {T}", f"r {T} 3 a 3", f"r {T} 4 a 4", "end 0"]
    assert story.judged(early).violations == {}


def test_what_a_group_never_read_is_unseen(story: Story) -> None:
    story.replace(story.reader, f"r {T} 4 a 4")
    assert story.judged().violations == {"unseen": 1}


def test_a_reading_whose_offsets_do_not_rise_is_found(story: Story) -> None:
    story.final.append(f"r {T} 4 a 4")
    assert story.judged().violations == {"disordered": 1}


def test_what_was_never_answered_is_found(story: Story) -> None:
    story.replace(story.writer, f"a {T} 4 4")
    assert story.judged().violations == {"unanswered": 1}


def test_what_the_application_was_told_has_failed_may_be_there_or_not(story: Story) -> None:
    story.replace(story.writer, f"a {T} 4 4", f"x {T} 4 timed_out")
    findings = story.judged()
    assert findings.violations == {}
    assert findings.counts["failed"] == 1
    for which in (story.final, story.reader):
        story.replace(which, f"r {T} 4 a 4")
    assert story.judged().violations == {}


@pytest.mark.parametrize("which", ["writer", "reader"])
def test_a_client_that_did_not_end_is_found(story: Story, which: str) -> None:
    getattr(story, which).pop()
    assert story.judged().violations == {"unended": 1}


def test_examples_are_few_and_counts_are_whole(story: Story) -> None:
    story.final.extend(f"r {T} {offset} b {offset}" for offset in range(5, 105))
    findings = story.judged()
    assert findings.violations == {"phantom": 100, "unseen": 100}
    assert len(findings.examples["phantom"]) == checker.EXAMPLES_MAX
