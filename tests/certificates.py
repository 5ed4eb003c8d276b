"""Certificates for tests, made by the openssl program: an authority and what it has signed"""

import datetime
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_STAMP = "%Y%m%d%H%M%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A certificate and its private key, each in a file and both in one."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Somebody who signs certificates, with its files in `folder`."""

    def __init__(self, folder: Path, name: str = "Test Authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("needs the openssl program")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certificate = folder / "authority.pem"
        self._key = folder / "authority.key"
        self._made = 0
        self._database = folder / "index.txt"
        self._database.touch()
        (folder / "index.txt.attr").write_text("unique_subject = no\n")
        openssl(
            "req", "-x509", *_NEW_KEY, "-nodes", "-keyout", self._key, "-out", self.certificate,
            "-subj", f"/CN={name}", "-days", "30", "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip

    def signed(
        self,
        subject: str = "/CN=localhost",
        names: str = "DNS:localhost,IP:127.0.0.1",
        *,
        days: int = 30,
        password: str = "",
    ) -> Identity:
        """An identity by `subject` for hosts `names`, that ends in so many days; negative for one that has ended."""
        self._made += 1
        stem = self.folder / f"identity-{self._made}"
        key, request, certificate = (stem.with_suffix(end) for end in (".key", ".csr", ".pem"))
        hidden = ("-passout", f"pass:{password}") if password else ("-nodes",)
        openssl("req", *_NEW_KEY, *hidden, "-keyout", key, "-out", request, "-subj", subject, "-utf8")
        settings = stem.with_suffix(".cnf")
        settings.write_text(self._settings(names))
        now = datetime.datetime.now(datetime.UTC)
        first = now + datetime.timedelta(days=min(days, 0) - 2)
        openssl(
            "ca", "-batch", "-config", settings, "-in", request, "-out", certificate, "-notext",
            "-preserveDN", "-utf8", "-startdate", first.strftime(_STAMP),
            "-enddate", (now + datetime.timedelta(days=days)).strftime(_STAMP),
        )  # fmt: skip
        both = stem.with_suffix(".both.pem")
        both.write_text(key.read_text() + certificate.read_text())
        return Identity(certificate=certificate, key=key, both=both)

    def _settings(self, names: str) -> str:
        extensions = f"subjectAltName={names}\n" if names else ""
        parts = ("countryName", "stateOrProvinceName", "localityName", "organizationName", "organizationalUnitName",
                 "commonName", "emailAddress", "domainComponent", "userId")  # fmt: skip
        policy = "".join(f"{part}=optional\n" for part in parts)
        return (
            f"[ca]\ndefault_ca=own\n[own]\ndatabase={self._database}\nnew_certs_dir={self.folder}\n"
            f"certificate={self.certificate}\nprivate_key={self._key}\nrand_serial=yes\ndefault_md=sha256\n"
            f"policy=any\nx509_extensions=more\n[any]\n{policy}[more]\nbasicConstraints=CA:FALSE\n{extensions}"
        )


def openssl(*arguments: object) -> None:
    """Run the program; its complaint is the failure."""
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
