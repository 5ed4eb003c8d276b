"""Authorized operations of a resource, as the bits that answers carry

Clients may ask with a description which operations they are allowed to do. Bit `n` stands for operation `n` of the
protocol. Who may do what is the authorizer's to say (`tidemill.broker.authorization`).
"""

import enum
from typing import Final


class Operation(enum.IntEnum):
    """The operations of Kafka's access control lists."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def bits(*operations: Operation) -> int:
    """The set of `operations`, as responses have it."""
    return sum(1 << operation for operation in operations)


NOT_ASKED: Final = -(2**31)
"""Of a client that did not want to know."""

TOPIC_OPERATIONS: Final = bits(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = bits(
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
)
CLUSTER_OPERATIONS: Final = bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
