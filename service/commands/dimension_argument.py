"""The dimension that a command is about, as it is named on the command line.

Whether there is one of that name is told by whoever is asked for it.
"""

from typing import Annotated

import typer

DimensionArgument = Annotated[
    str, typer.Argument(metavar="DIMENSION", help="Its name, as in the configuration.")
]
