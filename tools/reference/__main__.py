"""`python -m tools.reference [--check]`: write the generated pages of the documentation.

`--check` writes nothing; it names each page that is not current, and exits with 1 for any.
"""

import argparse
import sys
from collections.abc import Sequence

from tools.reference.pages import DOCS, outdated, texts


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.reference")
    parser.add_argument("--check", action="store_true", help="only name pages that are not current")
    if parser.parse_args(arguments).check:
        names = outdated()
        for name in names:
            print(f"{DOCS.name}/{name} is not current; run python -m tools.reference")
        return int(bool(names))
    for name, text in texts().items():
        (DOCS / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
