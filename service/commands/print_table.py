"""Tables on stdout: as wide as the terminal, or as wide as they are for a file or a pipe.

Texts without a table are simply printed.
"""

import sys

from rich.console import Console
from rich.table import Table

UNBOUND_WIDTH = 10_000  # characters; nothing is cut where nobody looks at it directly


def print_table(table: Table) -> None:
    """Print the table on stdout."""
    console = Console(width=None if sys.stdout.isatty() else UNBOUND_WIDTH)
    console.print(table)
