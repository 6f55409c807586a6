"""The generated pages: their files, and which of them differ from the code."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference.commands import commands_page
from tools.reference.configuration import configuration_page
from tools.reference.decisions import decisions_page
from tools.reference.errors import errors_page
from tools.reference.http import http_page
from tools.reference.metrics import metrics_page
from tools.reference.rules import rules_text

DOCS = Path(__file__).parents[2] / "docs"
PAGES: Mapping[str, Callable[[], str]] = {
    "decisions/index.md": decisions_page,
    "reference/commands.md": commands_page,
    "reference/configuration.md": configuration_page,
    "reference/errors.md": errors_page,
    "reference/http.md": http_page,
    "reference/metrics.md": metrics_page,
    "reference/sidelook.rules.yml": rules_text,
}


def texts() -> dict[str, str]:
    """{file: its current text}."""
    return {name: text() for name, text in PAGES.items()}


def outdated() -> list[str]:
    """The files that are missing or have another text."""
    return [
        name
        for name, text in texts().items()
        if not (DOCS / name).is_file() or (DOCS / name).read_text() != text
    ]
