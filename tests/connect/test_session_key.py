"""When a leader makes a new session key"""

import pytest

from tidemill.connect.session_key import KEY_BITS, KeySettings, why_new
from tidemill.connect.signing import DIGESTS
from tidemill.connect.stores import SessionKey

HOUR_MS = 3_600_000
SETTINGS = KeySettings()
KEY = SessionKey(key=b"k" * 32, algorithm="HmacSHA256", created_ms=1_000_000)


def test_the_first_leader_makes_the_first_key() -> None:
    assert why_new(SETTINGS, None, 0) == "there is none yet"


def test_a_key_lives_its_time_and_no_longer() -> None:
    assert why_new(SETTINGS, KEY, 1_000_000 + HOUR_MS - 1) is None
    assert why_new(SETTINGS, KEY, 1_000_000 + HOUR_MS) == "it has grown old"


def test_a_clock_that_is_set_back_makes_no_new_key_at_once() -> None:
    assert why_new(SETTINGS, KEY, 1_000_000 - HOUR_MS) is None


def test_a_key_from_the_future_does_not_live_for_ever() -> None:
    assert why_new(SETTINGS, KEY, 1_000_000 - HOUR_MS - 1) == "it is dated in the future"


def test_a_lifetime_of_0_has_no_end() -> None:
    settings = KeySettings(ttl_ms=0)
    assert why_new(settings, KEY, 10**15) is None
    assert why_new(settings, KEY, 0) is None


@pytest.mark.parametrize("settings", [KeySettings(algorithm="HmacSHA512", bits=256), KeySettings(bits=128)])
def test_other_settings_ask_for_another_key(settings: KeySettings) -> None:
    assert why_new(settings, KEY, KEY.created_ms) == "it was made by other settings"


def test_a_key_that_its_own_settings_made_is_good() -> None:
    for algorithm in KEY_BITS:
        settings = KeySettings(algorithm=algorithm)
        key = SessionKey(key=bytes(settings.size), algorithm=algorithm, created_ms=5)
        assert why_new(settings, key, 5) is None


def test_every_algorithm_has_its_length() -> None:
    assert KEY_BITS.keys() == DIGESTS.keys()
