"""The way in: `python -m service COMMAND`.

Holds no code of its own, so that everything can be imported without being run.
"""

import sys

from service.commands.application import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
