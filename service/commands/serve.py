"""`serve`: run the sidecar until it is told to stop.

Only reads the configuration and starts the loop; the parts are wired in `service.app`.
"""

import gc
import os
from pathlib import Path
from typing import Annotated

import typer

from service.commands.event_loop import run_on_event_loop
from service.config.loading import load_settings
from service.resources.thread_limit import check_thread_limit, needed_threads


def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="YAML file; without it, the dimensions of examples/parquet.yaml."
        ),
    ] = None,
) -> None:
    """Run the sidecar until SIGTERM or SIGINT."""
    settings = load_settings(config, os.environ)
    # Before libraries start threads of their own: they do not say what they miss.
    check_thread_limit(needed_threads())
    # Here, so that no other command waits for the imports of all adapters.
    from service import app  # noqa: PLC0415

    # The modules live as long as the process. Every full collection would look at all of them, and
    # hold the event loop for some 30 ms.
    gc.freeze()
    run_on_event_loop(app.run(settings, file=config))
