"""Entry point of `python -m service COMMAND`; importing it runs nothing."""

import sys

from service.commands.application import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
