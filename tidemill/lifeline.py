"""A service does not outlive the program that started it

The starter holds the writing end of the pipe that is the service's standard input, and the system closes it when the
starter ends, however it ends. The service waits for that on a thread.

A parent-death signal would do the same on Linux, but it follows the thread that started the service, and to ask for it
in time takes Python code between fork and exec. That code runs destructors of what other threads of the starter own:
one such shut down the connection between a test's PySpark and its JVM.
"""

import os
import signal
import threading

VARIABLE = "TIDEMILL_LIFELINE"
"""Set by the starter; says that standard input is a lifeline and not input."""


def hold() -> None:
    """Die with the starter, if it gave this process a lifeline."""
    if os.environ.pop(VARIABLE, None):  # taken, so that what this process starts does not read the pipe as well
        threading.Thread(target=_end_with_the_pipe, name="lifeline", daemon=True).start()


def _end_with_the_pipe() -> None:
    while os.read(0, 4096):
        pass  # nobody writes, and nothing that is written means anything
    os.kill(os.getpid(), signal.SIGKILL)
