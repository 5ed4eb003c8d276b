import pytest

from tidemill.broker.quorum.raft.settings import QuorumSettings


def test_the_defaults_are_kafkas() -> None:
    settings = QuorumSettings()
    assert (settings.election_timeout_ms, settings.fetch_timeout_ms) == (1000, 2000)
    assert (settings.election_backoff_max_ms, settings.request_timeout_ms) == (1000, 2000)
    assert settings.check_quorum_timeout_ms == 3000


@pytest.mark.parametrize("name", ["election_timeout_ms", "fetch_timeout_ms", "fetch_bytes_max"])
def test_nothing_is_nothing(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        QuorumSettings(**{name: 0})
