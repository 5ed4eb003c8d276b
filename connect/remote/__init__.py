"""Tasks in processes of their own, spoken to over a Unix socket

gRPC is told, before anybody can import it, that it need not survive a fork: the worker forks only to run another
program, and what a plugin forks does not use the stream. Otherwise it would complain about every fork.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
