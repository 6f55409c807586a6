"""`serve`: run the sidecar until it is told to stop.

Only reads the configuration and starts the loop; the parts are wired in `service.app`.
"""

import gc
import sys
from pathlib import Path

from service.commands.chosen_settings import NAME_IT, ConfigOption, chosen_settings
from service.commands.event_loop import run_on_event_loop
from service.resources.thread_limit import check_thread_limit, needed_threads


def serve(config: ConfigOption = None) -> None:
    """Run the sidecar until SIGTERM or SIGINT."""
    settings = chosen_settings(config, _log_example)
    # Before libraries start threads of their own: they do not say what they miss.
    check_thread_limit(needed_threads())
    # Here, so that no other command waits for the imports of all adapters.
    from service import app  # noqa: PLC0415

    # The modules live as long as the process. Every full collection would look at all of them, and
    # hold the event loop for some 30 ms.
    gc.freeze()
    run_on_event_loop(app.run(settings, file=config))


def _log_example(file: Path) -> None:
    # Here, as above.
    import structlog  # noqa: PLC0415

    from service.observability.logs import configure_logs  # noqa: PLC0415

    configure_logs(sys.stderr, level="info")
    structlog.get_logger().warning("serve.example_configuration", file=str(file), remedy=NAME_IT)
