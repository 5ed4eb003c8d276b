"""Every threshold of the doctor, and that whatever is not well comes with advice."""

import pytest

from tidemill.doctor import judge
from tidemill.doctor.judge import GIB, Finding, Level

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL


@pytest.mark.parametrize(
    ("finding", "level"),
    [
        (judge.disk_space("/d", 50 * GIB, 100 * GIB), OK),
        (judge.disk_space("/d", 9 * GIB, 100 * GIB), WARN),
        (judge.disk_space("/d", GIB - 1, 100 * GIB), FAIL),
        (judge.inodes("/d", 0, 0), OK),
        (judge.inodes("/d", 1_000_000, 2_000_000), OK),
        (judge.inodes("/d", 50_000, 2_000_000), WARN),
        (judge.inodes("/d", 999, 2_000_000), FAIL),
        (judge.open_files(1024, 1_048_576), OK),
        (judge.open_files(1024, -1), OK),
        (judge.open_files(1024, 4096), WARN),
        (judge.open_files(256, 1024), FAIL),
        (judge.memory_maps(None), OK),
        (judge.memory_maps(262_144), OK),
        (judge.memory_maps(65_530), OK),
        (judge.memory_maps(1_000), FAIL),
        (judge.sync_latency("/d", [0.1, 0.2, 300.0]), OK),
        (judge.sync_latency("/d", [9.0, 11.0, 12.0]), WARN),
        (judge.sync_latency("/d", [250.0]), FAIL),
        (judge.data_folder("/d", None), OK),
        (judge.data_folder("/d", "not a folder"), FAIL),
        (judge.cleaner([], 0), OK),
        (judge.cleaner([judge.UncleanableLog(name="t-0", reason="r", attempts=1, since_ms=0, retry_at_ms=9)], 5), WARN),
        (judge.cleaner_unknown("/d/f", "no JSON"), WARN),
        (judge.python((3, 11, 2), "0.21")[0], OK),
        (judge.python((3, 10, 9), "0.21")[0], FAIL),
        (judge.python((3, 12, 0), "0.21")[1], OK),
        (judge.python((3, 12, 0), None)[1], FAIL),
        (judge.congestion_control(None, True), OK),
        (judge.congestion_control("cubic", True), OK),
        (judge.congestion_control("bbr", False), OK),
        (judge.congestion_control("bbr", True), WARN),
        (judge.bootstrap("h:1", None, 1.0), OK),
        (judge.bootstrap("h:1", "refused"), FAIL),
        (judge.bootstrap("h:1", "cannot connect: the broker's certificate has expired: renew it"), FAIL),
        (judge.advertised(1, "h:1", "b:1", None, {"a"}), OK),
        (judge.advertised(1, "h:1", "b:1", "refused", {"a"}), FAIL),
        (judge.advertised(1, "h:1", "b:1", None, {"a", "b"}), FAIL),
        (judge.leaders([], 5), OK),
        (judge.leaders(["t-0"], 5), FAIL),
        (judge.clock_behind(None, 0), OK),
        (judge.clock_behind(1_000, 5_000), OK),
        (judge.clock_behind(7_001, 5_000), WARN),
        (judge.clock_behind(3_605_000, 5_000), FAIL),
    ],
)
def test_thresholds(finding: Finding, level: Level) -> None:
    assert finding.level is level, finding
    assert finding.advice or level is OK
    assert finding.text


def test_only_a_few_of_many_partitions_are_named() -> None:
    finding = judge.leaders([f"t-{number}" for number in range(100)], 200)
    assert finding.text == "100 of 200 partitions have no leader: t-0, t-1, t-2, …"


def uncleanable(name: str, retry_at_ms: int = 75_000) -> judge.UncleanableLog:
    return judge.UncleanableLog(name=name, reason="disk full", attempts=3, since_ms=5_000, retry_at_ms=retry_at_ms)


def test_a_log_that_cannot_be_compacted_is_told_with_reason_and_times() -> None:
    finding = judge.cleaner([uncleanable("t-0")], 60_000)
    assert finding.text == (
        "cannot be compacted: t-0: disk full (attempt 3, the first at 1970-01-01 00:00:05Z, "
        "the next at 1970-01-01 00:01:15Z)"
    )
    many = judge.cleaner([uncleanable(f"t-{number}") for number in range(5)], 60_000)
    assert many.text.endswith("; … (5 logs)") and "t-2" in many.text and "t-3" not in many.text


def test_a_list_that_nobody_works_on_any_more_asks_for_the_broker() -> None:
    for now_ms, alone in ((75_000, False), (75_000 + 3_600_000, False), (75_001 + 3_600_000, True)):
        assert ("start the broker" in judge.cleaner([uncleanable("t-0")], now_ms).advice) is alone
    late = judge.cleaner([uncleanable("t-0"), uncleanable("t-1", 10**8)], 10**8)
    assert "start the broker" not in late.advice, "another log was tried lately"


def test_a_broker_that_lets_nobody_in_is_not_to_be_started() -> None:
    assert "tidemill broker start" in judge.bootstrap("h:1", "cannot connect: Connection refused").advice
    for problem in ("connection lost: the broker wants a certificate: set", "peer closed; a listener that wants TLS"):
        assert "--command-config" in judge.bootstrap("h:1", problem).advice
