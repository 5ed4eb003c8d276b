"""What became different between two images

Whoever keeps something that it looked up in an image hears which topics, brokers and settings are others now, and
touches what it keeps of these. What two images share is not looked at, so a delta costs as much as what changed.

A delta may span many decisions: a topic that came and went between the two images is not in it, and one that went and
came again by another id is in `gone` as well as in `topics`.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tidemill.broker.quorum.image import ClusterImage
from tidemill.broker.quorum.shared_map import SharedMap

KeyT = TypeVar("KeyT", str, int, uuid.UUID)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDelta:
    """Keys of what is not as it was, in order; what they are now is in `after`."""

    before: ClusterImage
    after: ClusterImage
    topics: tuple[str, ...]
    """Made, gone, or with other partitions or settings."""
    gone: tuple[str, ...]
    """Those of `topics` that were there and are no more, or are others of the same name."""
    brokers: tuple[int, ...]
    broker_configs: tuple[str, ...]
    """Node ids as text; empty is all brokers."""
    features: tuple[str, ...]
    acls: tuple[uuid.UUID, ...]
    scram: tuple[str, ...]
    quotas: tuple[str, ...]
    tokens: tuple[str, ...]

    @classmethod
    def between(cls, before: ClusterImage, after: ClusterImage) -> "ImageDelta":
        """What to do to get from one to the other."""
        topics = _changed(before.topics, after.topics)
        old, new = before.security, after.security
        return cls(
            before=before,
            after=after,
            topics=topics,
            gone=tuple(name for name in topics if _is_gone(name, before, after)),
            brokers=_different(before.brokers, after.brokers),
            broker_configs=_different(before.broker_configs, after.broker_configs),
            features=_different(before.features, after.features),
            acls=_changed(old.acls, new.acls),
            scram=_changed(old.scram, new.scram),
            quotas=_changed(old.quotas, new.quotas),
            tokens=_changed(old.tokens, new.tokens),
        )


def _is_gone(name: str, before: ClusterImage, after: ClusterImage) -> bool:
    old, new = before.topics.get(name), after.topics.get(name)
    return old is not None and (new is None or new.topic_id != old.topic_id)


def _changed(before: SharedMap[KeyT, Any], after: SharedMap[KeyT, Any]) -> tuple[KeyT, ...]:
    return _in_order(after.changed_since(before))


def _different(before: Mapping[KeyT, Any], after: Mapping[KeyT, Any]) -> tuple[KeyT, ...]:
    missing = object()
    every = before.keys() | after.keys()
    return _in_order(key for key in every if before.get(key, missing) != after.get(key, missing))


def _in_order(keys: Iterable[KeyT]) -> tuple[KeyT, ...]:
    return tuple(sorted(keys))
