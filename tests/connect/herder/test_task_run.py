"""How long a task waits before it is started again, and which is"""

import itertools

from tidemill.connect.config import CONNECTOR
from tidemill.connect.failure import Failure
from tidemill.connect.herder.task_run import RESTART_TRANSIENT, RestartPolicy

WANTED = {RESTART_TRANSIENT: " True "}


def test_the_first_death_costs_no_time_and_no_wait_is_longer_than_the_longest() -> None:
    policy = RestartPolicy(first_ms=500, max_ms=3_000)
    assert [policy.delay_ms(deaths) for deaths in range(7)] == [0, 0, 500, 1_000, 2_000, 3_000, 3_000]
    assert policy.delay_ms(10_000) == 3_000


def test_a_killed_task_is_started_again_for_ever_and_a_transient_failure_within_its_budget() -> None:
    policy = RestartPolicy(transient_max=3)
    for failure, config, tries in itertools.product(Failure, ({}, {RESTART_TRANSIENT: "false"}, WANTED), (1, 3, 4, 99)):
        expected = failure is Failure.KILLED or (failure is Failure.TRANSIENT and config is WANTED and tries <= 3)
        assert policy.tries_again(failure, config, tries) is expected


def test_what_is_said_of_the_wait() -> None:
    policy = RestartPolicy()
    assert policy.sentence(Failure.TRANSIENT, 1, 1) == "tried again at once, 1 of 10"
    assert policy.sentence(Failure.TRANSIENT, 5, 2) == "tried again in 4 s, 2 of 10"
    assert policy.sentence(Failure.KILLED, 3, 1) == "started again in 1 s (death 3 in a row)"


def test_the_setting_is_in_the_table() -> None:
    (row,) = [row for row in CONNECTOR if row.key.name == RESTART_TRANSIENT]
    assert row.key.default is False
