"""Settings of topics and brokers: show, change, list

versions: DescribeConfigs 1-4 (1: where a value comes from, and its synonyms; 3: type and documentation).
AlterConfigs 0-2 (2: flexible). IncrementalAlterConfigs 0-1 (1: flexible). ListConfigResources 0-1 (0 could list the
subscriptions of client metrics only; 1: any type of resource, KIP-1142).

Resources are topics (2) and brokers (4; an empty name is the cluster-wide default of all brokers). AlterConfigs
replaces all that was set on a resource, so two administrators overwrite each other: that is why KIP-339 brought
IncrementalAlterConfigs. A broker key that is not known is refused, where Kafka would keep it without a word: nobody
finds a typo that way. Nothing can be set on client metrics, groups and broker loggers: none is listed, and there is
nothing to show of them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from tidemill.broker import administration_log
from tidemill.broker.authorization import (
    THE_CLUSTER,
    Need,
    Resource,
    ResourceKind,
    group_named,
    on_each,
    on_the_cluster,
    permit,
    topic_named,
)
from tidemill.broker.config import BROKER_CONFIG
from tidemill.broker.dispatch import BrokerServices, RequestContext, Route
from tidemill.broker.log.turns import Turns
from tidemill.broker.operations import Operation
from tidemill.broker.quorum.image import RESOURCE_BROKER, RESOURCE_TOPIC
from tidemill.broker.quorum.metadata import ConfigChange, ConfigOp, ResourceChange, ResourceResult, check_topic_name
from tidemill.broker.topic_config import TOPIC_CONFIG, ConfigSource, Layers, Synonym, text_of, walk_topic
from tidemill.core.config import ConfigKey, ConfigType
from tidemill.core.error_code import ErrorCode
from tidemill.core.errors import KafkaError, UnsupportedVersion, error_for_code
from tidemill.core.wire.api import ApiKey
from tidemill.core.wire.messages import alter_configs as legacy
from tidemill.core.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tidemill.core.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidemill.core.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

RESOURCE_TYPES: Final = frozenset({RESOURCE_TOPIC, RESOURCE_BROKER, 8, 16, 32})
"""Every type of resource that the protocol knows; 8 broker loggers, 16 client metrics, 32 groups."""

RESOURCE_GROUP: Final = 32

UNSET_TYPES: Final = frozenset({16, RESOURCE_GROUP})
"""Client metrics and groups: there can be one of any name, and nothing is set on it."""

_WIRE_TYPES = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.SHORT: 4,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.CLASS: 8,
    ConfigType.PASSWORD: 9,
}


async def describe_configs(
    broker: BrokerServices, request: DescribeConfigsRequest, ctx: RequestContext
) -> DescribeConfigsResponse:
    """Settings of topics and brokers, each with where it comes from; what is named often is described once."""
    turns, results = Turns(broker.clock.monotonic), []
    for resource in _once(request.resources):
        results.append(_described(broker, ctx, resource, request))
        await turns.give_way()
    return DescribeConfigsResponse(results=tuple(results))


def _ruled(resource_type: int, name: str) -> Resource:
    """What the rules about some settings are about: brokers and client metrics are the cluster's."""
    if resource_type == RESOURCE_TOPIC:
        return topic_named(name)
    return group_named(name) if resource_type == RESOURCE_GROUP else THE_CLUSTER


def _once(resources: Iterable[DescribeConfigsResource]) -> Iterator[DescribeConfigsResource]:
    """Each resource once, with all keys that are asked of it: another name of ten bytes would be ten kilobytes more."""
    wanted: dict[tuple[int, str], dict[str, None] | None] = {}
    for resource in resources:
        place = resource.resource_type, resource.resource_name
        known = wanted.setdefault(place, {})
        if known is None or not resource.configuration_keys:
            wanted[place] = None
        else:
            known.update(dict.fromkeys(resource.configuration_keys))
    for (kind, name), keys in wanted.items():
        yield DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None if keys is None else tuple(keys)
        )


def _described(
    broker: BrokerServices, ctx: RequestContext, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    try:
        ruled = _ruled(resource.resource_type, resource.resource_name)
        permit(broker.authorizer, ctx, Operation.DESCRIBE_CONFIGS, ruled)
        rows = list(_rows(broker, resource))
    except KafkaError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=str(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    wanted = resource.configuration_keys  # none named: all, as with null
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            _row(key, walk, read_only, request) for key, walk, read_only in rows if not wanted or key.name in wanted
        ),
    )


def _rows(broker: BrokerServices, resource: DescribeConfigsResource) -> Iterable[tuple[ConfigKey, list[Synonym], bool]]:
    name = resource.resource_name
    if resource.resource_type == RESOURCE_TOPIC:
        topic = broker.controller.image.topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise error_for_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        layers = broker.config_layers()
        return ((key, walk_topic(key, topic.configs, layers), False) for key in TOPIC_CONFIG)
    if resource.resource_type in UNSET_TYPES and name:
        return ()
    if resource.resource_type != RESOURCE_BROKER:
        raise error_for_code(
            ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no settings on this cluster"
        )
    layers = broker.config_layers()
    if name == "":
        defaults = Layers(dynamic_broker={}, dynamic_default=layers.dynamic_default, static={})
        return (
            (key, defaults.walk(key), not key.dynamic) for key in BROKER_CONFIG if key.name in layers.dynamic_default
        )
    if name != str(broker.node_id):
        raise error_for_code(
            ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}: ask broker {name!r} for its own settings"
        )
    return ((key, layers.walk(key), not key.dynamic) for key in BROKER_CONFIG)


def _row(
    key: ConfigKey, walk: list[Synonym], read_only: bool, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    sensitive = key.type is ConfigType.PASSWORD
    held = walk[0] if walk else Synonym(name=key.name, given=None, value=None, source=ConfigSource.DEFAULT)
    return DescribeConfigsResourceResult(
        name=key.name,
        value=None if sensitive else text_of(held.value),
        read_only=read_only,
        config_source=int(held.source),
        is_sensitive=sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(
                name=entry.name, value=None if sensitive else text_of(entry.given), source=int(entry.source)
            )
            for entry in walk
        )
        if request.include_synonyms
        else (),
        config_type=_WIRE_TYPES[key.type],
        documentation=key.doc if request.include_documentation else None,
    )


async def incremental_alter_configs(
    broker: BrokerServices, request: IncrementalAlterConfigsRequest, ctx: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Set, delete, append to or subtract from single keys."""
    results = await _altered(
        broker,
        ctx,
        [
            ResourceChange(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                changes=tuple(
                    ConfigChange(name=change.name, op=change.config_operation, value=change.value)
                    for change in resource.configs
                ),
            )
            for resource in request.resources
        ],
        validate_only=request.validate_only,
    )
    if not request.validate_only:
        administration_log.tell("settings changed", _changed(request.resources, results), ctx)
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=_code(result),
                error_message=_text(result),
                resource_type=result.resource_type,
                resource_name=result.resource_name,
            )
            for result in results
        )
    )


async def alter_configs(
    broker: BrokerServices, request: legacy.AlterConfigsRequest, ctx: RequestContext
) -> legacy.AlterConfigsResponse:
    """Make the keys of the request all that is set on each resource."""
    results = await _altered(
        broker,
        ctx,
        [
            ResourceChange(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                changes=tuple(
                    ConfigChange(name=change.name, op=ConfigOp.SET, value=change.value) for change in resource.configs
                ),
                replace=True,
            )
            for resource in request.resources
        ],
        validate_only=request.validate_only,
    )
    if not request.validate_only:
        administration_log.tell("settings replaced", _changed(request.resources, results), ctx)
    return legacy.AlterConfigsResponse(
        responses=tuple(
            legacy.AlterConfigsResourceResponse(
                error_code=_code(result),
                error_message=_text(result),
                resource_type=result.resource_type,
                resource_name=result.resource_name,
            )
            for result in results
        )
    )


async def _altered(
    broker: BrokerServices, ctx: RequestContext, changes: Iterable[ResourceChange], *, validate_only: bool
) -> list[ResourceResult]:
    """What became of each resource; last those that the client may not change."""
    allowed, refused = [], []
    for change in changes:
        try:
            ruled = _ruled(change.resource_type, change.resource_name)
            permit(broker.authorizer, ctx, Operation.ALTER_CONFIGS, ruled)
        except KafkaError as error:
            refused.append(
                ResourceResult(resource_type=change.resource_type, resource_name=change.resource_name, error=error)
            )
        else:
            allowed.append(change)
    return [*await broker.controller.alter_configs(allowed, validate_only=validate_only), *refused]


def _changed(
    resources: Iterable[AlterConfigsResource | legacy.AlterConfigsResource], results: Iterable[ResourceResult]
) -> Iterator[str]:
    """What was changed of what: names of settings, never values, some of which are secrets."""
    keys = {
        (resource.resource_type, resource.resource_name): ", ".join(change.name for change in resource.configs)
        for resource in resources
    }
    for result in results:
        if result.error is None:
            kind = "topic" if result.resource_type == RESOURCE_TOPIC else "broker"
            place = result.resource_type, result.resource_name
            yield f"{kind} {result.resource_name or 'defaults'} ({keys.get(place, '')})"


def _code(result: ResourceResult) -> int:
    return 0 if result.error is None else result.error.code


def _text(result: ResourceResult) -> str | None:
    return None if result.error is None else str(result.error)


def list_config_resources(
    broker: BrokerServices, request: ListConfigResourcesRequest, ctx: RequestContext
) -> ListConfigResourcesResponse:
    """Names of the resources of some types, of all types when none is named."""
    if ctx.api_version == 0:
        return ListConfigResourcesResponse()  # client metrics, of which there are none
    wanted = frozenset(request.resource_types) or RESOURCE_TYPES
    unknown = wanted - RESOURCE_TYPES
    if unknown:
        raise UnsupportedVersion(f"there are no resources of type {min(unknown)}")
    image = broker.controller.image
    names = {RESOURCE_TOPIC: sorted(image.topics), RESOURCE_BROKER: [str(node) for node in sorted(image.brokers)]}
    return ListConfigResourcesResponse(
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(wanted)
            for name in names.get(kind, ())
        )
    )


def _describe_failed(request: DescribeConfigsRequest, error: KafkaError, api_version: int) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=tuple(
            DescribeConfigsResult(
                error_code=error.code,
                error_message=str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        )
    )


def _alter_failed(
    request: IncrementalAlterConfigsRequest, error: KafkaError, api_version: int
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        )
    )


def _replace_failed(
    request: legacy.AlterConfigsRequest, error: KafkaError, api_version: int
) -> legacy.AlterConfigsResponse:
    return legacy.AlterConfigsResponse(
        responses=tuple(
            legacy.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        )
    )


def _each_kind(operation: Operation) -> tuple[Need, ...]:
    kinds = (ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER)
    return tuple(on_each(operation, kind) for kind in kinds)


ROUTES = (
    Route(
        key=ApiKey.DESCRIBE_CONFIGS,
        handle=describe_configs,
        min_version=1,
        max_version=4,
        needs=_each_kind(Operation.DESCRIBE_CONFIGS),
        error_response=_describe_failed,
    ),
    Route(
        key=ApiKey.ALTER_CONFIGS,
        handle=alter_configs,
        min_version=0,
        max_version=2,
        needs=_each_kind(Operation.ALTER_CONFIGS),
        error_response=_replace_failed,
    ),
    Route(
        key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
        handle=incremental_alter_configs,
        min_version=0,
        max_version=1,
        needs=_each_kind(Operation.ALTER_CONFIGS),
        error_response=_alter_failed,
    ),
    Route(
        key=ApiKey.LIST_CONFIG_RESOURCES,
        handle=list_config_resources,
        min_version=0,
        max_version=1,
        needs=(on_the_cluster(Operation.DESCRIBE_CONFIGS),),
    ),
)
