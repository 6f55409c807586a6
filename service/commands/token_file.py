"""The bearer token that a command shows to the sidecar, from a file.

Never an argument: arguments are seen by everybody on the machine.
"""

from pathlib import Path
from typing import Annotated

import typer


def read_token(text: str) -> str:
    """The token in the file; raises typer.BadParameter if there is none."""
    try:
        token = Path(text).read_text(encoding="ascii").strip()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {text}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{text} holds more than plain text") from error
    if not token or not token.isprintable():
        raise typer.BadParameter(f"{text} does not hold a token on one line")
    return token


TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token-file", parser=read_token, metavar="FILE", help="Token, where one is asked for."
    ),
]
