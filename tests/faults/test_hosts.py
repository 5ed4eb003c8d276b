"""Which runs have left something behind"""

from tests.faults.hosts import runs


def test_a_run_is_known_by_its_namespaces_and_by_its_disks() -> None:
    spaces = ["tidemill-faults-17-switch", "tidemill-faults-17-1", "tidemill-faults-18-probe"]
    disks = ["/tmp/tidemill-faults-abc1/tidemill-faults-19/disk-1", "/tmp/x/tidemill-faults-17/disk-2"]
    assert runs(spaces, disks) == {"tidemill-faults-17": 17, "tidemill-faults-18": 18, "tidemill-faults-19": 19}


def test_what_is_not_the_kits_is_no_run() -> None:
    disks = ["/", "/proc", "/tmp/tidemill-faults-12ab/disk-1", "/tmp/tidemill-faults-/disk-1", "/home/x"]
    assert runs([], disks) == {}
