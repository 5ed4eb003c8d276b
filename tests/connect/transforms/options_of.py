"""A transformation or predicate by its name and options, for tests of one family"""

from tidemill.connect.api import Json, Predicate, Record, Schema, Transform
from tidemill.connect.settings import parse_settings
from tidemill.connect.transforms.registry import find


def made(name: str, /, **options: str) -> Transform | Predicate:
    """Make it; an underscore in an option's name is a point."""
    plugin = find(name)
    assert plugin is not None
    part = plugin.task(parse_settings(plugin, {each.replace("_", "."): text for each, text in options.items()}))
    assert isinstance(part, Transform | Predicate)
    return part


def applied(transform: Transform | Predicate, value: Json = None, schema: Schema | None = None, **more: Json) -> Record:
    """What it makes of one record."""
    assert isinstance(transform, Transform)
    [out] = transform.apply([Record(topic="t", value=value, value_schema=schema, **more)])
    assert out is not None
    return out
