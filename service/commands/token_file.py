"""The bearer token that a command shows to the sidecar, from a file.

Never an argument: arguments are seen by everybody on the machine.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from service.config.settings import Settings


@dataclass(frozen=True, slots=True)
class ShownToken:
    """A token, and the option or setting that named its file."""

    text: str
    origin: str


def shown_token(given: str | None, settings: Settings | None) -> ShownToken | None:
    """That of --token-file, else the configuration's own; None if it has none that is fit.

    What is wrong with the configuration's file is told by who looks at its secrets.
    """
    if given is not None:
        return ShownToken(given, "--token-file")
    file = None if settings is None else settings.auth.token_file
    if file is None:
        return None
    try:
        return ShownToken(read_token(str(file)), "auth.token_file")
    except typer.BadParameter:
        return None


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
