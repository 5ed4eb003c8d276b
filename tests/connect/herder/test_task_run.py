"""How long a killed task waits"""

from tidemill.connect.herder.task_run import RestartPolicy


def test_the_first_death_costs_no_time_and_no_wait_is_longer_than_the_longest() -> None:
    policy = RestartPolicy(first_ms=500, max_ms=3_000)
    assert [policy.delay_ms(deaths) for deaths in range(7)] == [0, 0, 500, 1_000, 2_000, 3_000, 3_000]
    assert policy.delay_ms(10_000) == 3_000
