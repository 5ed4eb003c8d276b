"""Wheels of small plugins, made without a build tool"""

import base64
import hashlib
import textwrap
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

SOURCE = """
import time
from pydantic import BaseModel, Field, SecretStr
from tidemill import Plugin, PluginKind, SourceTask, Record, InvalidConfig

VERSION = "{version}"

class Settings(BaseModel):
    topic: str = Field(min_length=1, description="Topic of version {version}")
    every_s: float = Field(default=0.05, ge=0, alias="every.seconds")
    password: SecretStr = SecretStr("none")

class Task(SourceTask):
    def __init__(self, settings):
        self.settings = settings

    def start(self, context):
        context.report({{"version": VERSION, "part": context.config.get("part", "")}})
        self.number = 0

    def poll(self):
        time.sleep(max(0.01, self.settings.every_s))
        self.number += 1
        here = {{"partition": {{"p": 1}}, "offset": {{"n": self.number}}}}
        return [Record(topic=self.settings.topic, key=None, value=VERSION, **here)]

def check(settings):
    if settings.topic == "refused":
        raise InvalidConfig("topic", f"version {{VERSION}} does not like it", "Take another.")

plugin = Plugin(
    name="{plugin}", kind=PluginKind.SOURCE, version=VERSION, config=Settings, task=Task, check=check,
    split=lambda settings, tasks_max: [{{"part": f"of {version}"}}],
    left_behind=lambda settings: [f"something of version {version}"],
)
"""


def source_code(version: str, plugin: str = "Shelf") -> str:
    """A source that writes its version."""
    return SOURCE.format(version=version, plugin=plugin)


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    *,
    plugins: Mapping[str, str] | None = None,
    group: str = "tidemill.plugins",
    requires: Sequence[str] = (),
    scripts: Mapping[str, str] | None = None,
) -> Path:
    """Write a wheel of modules; `plugins` are entry points."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    points = f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in (plugins or {}).items())
    points += "[console_scripts]\n" + "".join(f"{key} = {value}\n" for key, value in (scripts or {}).items())
    content = {
        **{path: textwrap.dedent(text) for path, text in files.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": points,
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            archive.writestr(zipfile.ZipInfo(path), text)  # with one date, so that the same is the same to the byte
    return wheel


def make_plugin(folder: Path, version: str, name: str = "shelf", **more: object) -> Path:
    """A wheel of the source, `shelf`, in a version."""
    code = source_code(version, str(more.pop("plugin", "Shelf")))
    return make_wheel(folder, name, version, {"shelf.py": code}, plugins={"shelf": "shelf:plugin"}, **more)  # type: ignore[arg-type]


def hash_of(wheel: Path) -> str:
    """As pip writes it."""
    return f"sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"


def line_of(wheel: Path) -> str:
    """The requirement that means this wheel."""
    name, version = wheel.name.split("-")[:2]
    return f"{name.replace('_', '-')}=={version} --hash={hash_of(wheel)}"


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
