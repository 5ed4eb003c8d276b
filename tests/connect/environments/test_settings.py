"""What a worker's settings say of plugin environments"""

import pytest

from tidemill.connect.config import WORKER, parse_worker
from tidemill.core.config import ConfigError


def test_there_are_none_unless_it_is_said_and_nothing_is_installed_through_the_api() -> None:
    settings = parse_worker({}).environments
    assert (settings.folder, settings.packages) == ("", ())
    assert "set plugin.environments to a folder" in settings.refusal()
    settings = parse_worker({"plugin.environments": "/plugins"}).environments
    assert settings.refusal() == (
        "this worker lets nothing be installed or removed through its REST API: list the package in "
        "plugin.install.packages, or use the command on the worker's machine with --folder /plugins"
    )
    settings = parse_worker({"plugin.environments": "/plugins", "plugin.install.packages": "a, b"}).environments
    assert (settings.packages, settings.refusal()) == (("a", "b"), "")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"plugin.install.packages": "*"}, "plugin.install.packages needs plugin.environments: a folder"),
        ({"plugin.environments": "/p", "plugin.install.packages": "a b"}, "a b is no name of a package"),
        ({"plugin.environments": "/p", "plugin.install.packages": "acme-*"}, r"acme-\* is no name of a package"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_worker(settings)


def test_they_are_on_the_page_of_settings() -> None:
    assert "| `plugin.environments` | string |" in WORKER.markdown()
    assert "| `plugin.install.packages` | list |" in WORKER.markdown()
