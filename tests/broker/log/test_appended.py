"""What is answered to a batch that is there already"""

import pytest

from tidemill.broker.log.appended import AppendResult, StoredBefore, stored_already
from tidemill.broker.log.producers import KNOWN_BY_SEQUENCE, KeptBatch


@pytest.mark.parametrize(("stamps", "time"), [(True, 77), (False, -1)])
def test_a_known_original_is_named(stamps: bool, time: int) -> None:
    found = stored_already(KeptBatch(3, 5, 30, 32, 77), 10, stamps=stamps)
    assert found == AppendResult(30, 32, time, 10, duplicate=True)
    assert not isinstance(found, StoredBefore)


def test_one_from_long_ago_has_no_offset_and_waits_for_the_newest() -> None:
    found = stored_already(KeptBatch(3, 5, KNOWN_BY_SEQUENCE, 99, 77), 10, stamps=True)
    assert isinstance(found, StoredBefore)
    assert found == (-1, 99, -1, 10, True)
