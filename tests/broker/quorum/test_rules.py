"""What holds for a topic: its own settings, the default of all brokers, the file, the default."""

import pytest

from tidemill.broker.quorum.rules import Rules

KEY, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


@pytest.mark.parametrize(
    ("own", "default", "file", "holds"),
    [({}, {}, None, 1), ({}, {}, 2, 2), ({}, {KEY: "3"}, 2, 3), ({KEY: "1"}, {KEY: "3"}, 2, 1)],
)
def test_how_many_have_to_be_in_sync(
    own: dict[str, str], default: dict[str, str], file: int | None, holds: int
) -> None:
    assert Rules(min_insync_replicas=file).min_in_sync(own, default) == holds


@pytest.mark.parametrize(
    ("own", "default", "file", "replicas", "given"),
    [
        ({}, {}, None, 3, "2"),
        ({}, {}, None, 5, "2"),
        ({}, {}, None, 2, None),
        ({}, {}, 1, 3, None),
        ({}, {KEY: "1"}, None, 3, None),
        ({KEY: "3"}, {}, None, 3, None),
    ],
)
def test_what_a_new_topic_gets_where_nobody_says_anything(
    own: dict[str, str], default: dict[str, str], file: int | None, replicas: int, given: str | None
) -> None:
    assert Rules(min_insync_replicas=file).min_in_sync_of_new(own, default, replicas) == given


@pytest.mark.parametrize(
    ("own", "default", "file", "holds"),
    [
        ({}, {}, False, False),
        ({}, {}, True, True),
        ({}, {UNCLEAN: "false"}, True, False),
        ({UNCLEAN: "TRUE"}, {UNCLEAN: "false"}, False, True),
    ],
)
def test_whether_a_leader_may_lack_records(
    own: dict[str, str], default: dict[str, str], file: bool, holds: bool
) -> None:
    assert Rules(unclean_leader_election_enable=file).may_lose(own, default) is holds
