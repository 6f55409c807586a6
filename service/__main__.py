"""Entry point of `python -m service COMMAND`; importing it runs nothing."""

import signal
import sys


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    # Before imports, which take seconds: the kernel drops signals without a handler for the first
    # process of a container, which would start, serve, and be killed after the grace period.
    signal.signal(signal.SIGTERM, _end)

    from service.commands.application import main

    main()
