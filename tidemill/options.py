"""Options that several commands share, spelled once

Every command that talks to a cluster takes `--bootstrap-server HOST:PORT`, as Kafka's own tools do; `-b` is its short
form and `--bootstrap` an alias. The variable TIDEMILL_BOOTSTRAP stands in for it. `--command-config FILE`, theirs too,
has settings of the client, such as `security.protocol=SSL`; its variable is TIDEMILL_COMMAND_CONFIG.
"""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        "--bootstrap",
        envvar="TIDEMILL_BOOTSTRAP",
        metavar="HOST:PORT",
        help="A broker of the cluster; several with commas.",
    ),
]

CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="TIDEMILL_COMMAND_CONFIG",
        metavar="FILE",
        help="A .properties or .toml file of client settings: security.protocol, ssl.truststore.location, ...",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
