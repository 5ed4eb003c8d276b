"""Settings of what workers ask of each other, as a worker reads them"""

import pytest

from tidemill.connect.config import parse_worker
from tidemill.connect.inter_worker import InterWorker
from tidemill.connect.session_key import KeySettings
from tidemill.core.config import ConfigError


def test_nothing_has_to_be_said() -> None:
    assert parse_worker({}).inter_worker == InterWorker()
    assert InterWorker().key == KeySettings(algorithm="HmacSHA256", bits=None, ttl_ms=3_600_000)


def test_all_of_it_is_read() -> None:
    settings = {
        "inter.worker.key.generation.algorithm": "HmacSHA512",
        "inter.worker.key.size": "1024",
        "inter.worker.key.ttl.ms": "0",
        "inter.worker.signature.algorithm": "HmacSHA1",
        "inter.worker.verification.algorithms": "HmacSHA256, HmacSHA1",
    }
    worker = parse_worker(settings)
    assert worker.inter_worker == InterWorker(
        key=KeySettings(algorithm="HmacSHA512", bits=1024, ttl_ms=0),
        signature="HmacSHA1",
        verification=("HmacSHA256", "HmacSHA1"),
    )
    assert worker.notes == ()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"inter.worker.key.ttl.ms": "-1"}, "inter.worker.key.ttl.ms"),
        ({"inter.worker.key.ttl.ms": "2147483648"}, "outside"),
        ({"inter.worker.key.size": "39"}, "inter.worker.key.size"),
        ({"inter.worker.key.size": "8000000"}, "inter.worker.key.size"),
        ({"inter.worker.key.generation.algorithm": "AES"}, "AES is not available: there are HmacMD5"),
        ({"inter.worker.signature.algorithm": "HmacSHA3"}, "HmacSHA3 is not available"),
        ({"inter.worker.verification.algorithms": ""}, "at least one"),
        ({"inter.worker.verification.algorithms": "HmacSHA256,none"}, "none is not available"),
        (
            {"inter.worker.signature.algorithm": "HmacSHA512"},
            "Signature algorithm must be present in inter.worker.verification.algorithms list",
        ),
        ({"inter.worker.verification.algorithms": "HmacSHA512"}, "Signature algorithm must be present in"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_worker(settings)
