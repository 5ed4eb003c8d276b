"""The transformations and predicates there are, by name

Those of Connect and Debezium are listed here under their Java classes; others are entry points of the group
`tidemill.transforms`, each a `Plugin` of the kind transformation or predicate. A class is also found without its
package.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from pydantic import BaseModel

from tidemill.connect.api import Plugin, PluginKind, Predicate, Transform, Unsupported
from tidemill.connect.loader import installed_transforms
from tidemill.connect.transforms import debezium_options, options
from tidemill.connect.transforms.casting import Cast
from tidemill.connect.transforms.fields import ExtractField, HoistField, ValueToKey
from tidemill.connect.transforms.filtering import Filter, HasHeaderKey, RecordIsTombstone
from tidemill.connect.transforms.flatten import Flatten
from tidemill.connect.transforms.headers import DropHeaders, HeaderFrom, InsertHeader
from tidemill.connect.transforms.insert_field import InsertField
from tidemill.connect.transforms.logical_table_router import ByLogicalTableRouter
from tidemill.connect.transforms.mask_field import MaskField
from tidemill.connect.transforms.new_record_state import ExtractNewRecordState
from tidemill.connect.transforms.outbox_router import EventRouter
from tidemill.connect.transforms.replace_field import ReplaceField
from tidemill.connect.transforms.role import KEY, VALUE, Role
from tidemill.connect.transforms.routing import RegexRouter, TimestampRouter, TopicNameMatches
from tidemill.connect.transforms.schema_metadata import SetSchemaMetadata
from tidemill.connect.transforms.timestamp_converter import TimestampConverter

PACKAGE: Final = "org.apache.kafka.connect.transforms."
DEBEZIUM: Final = "io.debezium.transforms."
VERSION: Final = "1.0"


def _plugin(
    name: str, kind: PluginKind, make: Callable[[Any], Transform | Predicate], model: type[BaseModel]
) -> Plugin:
    return Plugin(name=name, kind=kind, version=VERSION, config=model, task=make)


def _both(name: str, make: Callable[[Role, Any], Transform], model: type[BaseModel]) -> Iterator[Plugin]:
    """Of keys and of values."""
    for role in (KEY, VALUE):

        def of_role(settings: BaseModel, role: Role = role) -> Transform:
            return make(role, settings)

        yield _plugin(f"{PACKAGE}{name}${role.name}", PluginKind.TRANSFORMATION, of_role, model)


def _one(name: str, make: Callable[[Any], Transform], model: type[BaseModel]) -> Plugin:
    return _plugin(PACKAGE + name, PluginKind.TRANSFORMATION, make, model)


def _predicate(name: str, make: Callable[[Any], Predicate], model: type[BaseModel]) -> Plugin:
    return _plugin(f"{PACKAGE}predicates.{name}", PluginKind.PREDICATE, make, model)


def _debezium(
    name: str, make: Callable[[Any], Transform], model: type[BaseModel], unsupported: tuple[Unsupported, ...]
) -> Plugin:
    plugin = _plugin(DEBEZIUM + name, PluginKind.TRANSFORMATION, make, model)
    return replace(plugin, unsupported=unsupported)


OF_KAFKA: Final[tuple[Plugin, ...]] = (
    *_both("Cast", Cast, options.CastOptions),
    _one("DropHeaders", DropHeaders, options.DropHeadersOptions),
    *_both("ExtractField", ExtractField, options.ExtractFieldOptions),
    _one("Filter", lambda settings: Filter(), options.NoOptions),
    *_both("Flatten", Flatten, options.FlattenOptions),
    *_both("HeaderFrom", HeaderFrom, options.HeaderFromOptions),
    *_both("HoistField", HoistField, options.HoistFieldOptions),
    *_both("InsertField", InsertField, options.InsertFieldOptions),
    _one("InsertHeader", InsertHeader, options.InsertHeaderOptions),
    *_both("MaskField", MaskField, options.MaskFieldOptions),
    _one("RegexRouter", RegexRouter, options.RegexRouterOptions),
    *_both("ReplaceField", ReplaceField, options.ReplaceFieldOptions),
    *_both("SetSchemaMetadata", SetSchemaMetadata, options.SetSchemaMetadataOptions),
    *_both("TimestampConverter", TimestampConverter, options.TimestampConverterOptions),
    _one("TimestampRouter", TimestampRouter, options.TimestampRouterOptions),
    _one("ValueToKey", ValueToKey, options.ValueToKeyOptions),
    _predicate("HasHeaderKey", HasHeaderKey, options.HasHeaderKeyOptions),
    _predicate("RecordIsTombstone", lambda settings: RecordIsTombstone(), options.NoOptions),
    _predicate("TopicNameMatches", TopicNameMatches, options.TopicNameMatchesOptions),
)
"""Kafka Connect's own."""

OF_DEBEZIUM: Final[tuple[Plugin, ...]] = (
    _debezium(
        "ExtractNewRecordState",
        ExtractNewRecordState,
        debezium_options.ExtractNewRecordStateOptions,
        debezium_options.OLD_UNWRAP_OPTIONS,
    ),
    _debezium(
        "outbox.EventRouter",
        EventRouter,
        debezium_options.EventRouterOptions,
        (*debezium_options.NO_TRACING, debezium_options.NO_FIELD_NAMES),
    ),
    _debezium("ByLogicalTableRouter", ByLogicalTableRouter, debezium_options.ByLogicalTableRouterOptions, ()),
)
"""Debezium's, for its changes and ours."""

BUILT_IN: Final = OF_KAFKA + OF_DEBEZIUM


def available() -> tuple[Plugin, ...]:
    """All there are, the built-in ones first."""
    return (*BUILT_IN, *installed_transforms())


def find(name: str, kind: PluginKind | None = None) -> Plugin | None:
    """The plugin of that name and kind, an exact name before one without its package."""
    wanted = [each for each in available() if kind is None or each.kind is kind]
    for spelling in (name, f".{name}"):
        for plugin in wanted:
            names = (plugin.name, *plugin.aliases)
            if any(each == spelling if spelling == name else each.endswith(spelling) for each in names):
                return plugin
    return None
