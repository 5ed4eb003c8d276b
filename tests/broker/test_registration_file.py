"""What a folder says of the last registration, and whether it may be believed"""

import random
import uuid

import pytest

from tests.sim.disk import SimulatedDisk
from tidemill.broker.registration_file import (
    NAME,
    UNKNOWN,
    PastRegistration,
    epoch_held,
    read_registration,
    write_registration,
)


def test_a_new_folder_holds_nothing() -> None:
    data = SimulatedDisk().root
    assert read_registration(data) is None
    assert epoch_held(data, closed_in_order=True) == UNKNOWN


@pytest.mark.parametrize("survives", [True, False])
def test_it_is_there_after_a_power_cut(survives: bool) -> None:
    disk = SimulatedDisk()
    past = PastRegistration(broker_epoch=7, survives_a_crash=survives)
    write_registration(disk.root, past)
    disk.crash(random.Random(1))
    assert read_registration(disk.root) == past


def test_a_crash_takes_nothing_only_where_records_were_on_the_disk_first() -> None:
    data = SimulatedDisk().root
    write_registration(data, PastRegistration(broker_epoch=7, survives_a_crash=False))
    assert epoch_held(data, closed_in_order=False) == UNKNOWN
    assert epoch_held(data, closed_in_order=True) == 7
    write_registration(data, PastRegistration(broker_epoch=9, survives_a_crash=True))
    assert epoch_held(data, closed_in_order=False) == 9


def test_who_was_about_to_register_is_there_beside_what_was_held() -> None:
    data = SimulatedDisk().root
    past = PastRegistration(broker_epoch=7, survives_a_crash=True, registering=uuid.UUID(int=9))
    write_registration(data, past)
    assert read_registration(data) == past
    assert epoch_held(data, closed_in_order=False) == 7
    data.replace(NAME, data.read(NAME).replace(b"registering=", b"registering=x"))
    assert read_registration(data) is None


@pytest.mark.parametrize("text", [b"", b"version=1\nbroker.epoch=7\n", b"version=0\nbroker.epoch=-3\n", b"\xff\xfe"])
def test_what_cannot_be_read_is_no_promise(text: bytes) -> None:
    data = SimulatedDisk().root
    data.replace(NAME, text)
    assert epoch_held(data, closed_in_order=True) == UNKNOWN
