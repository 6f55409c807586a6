"""The page that lists the decisions, by the titles of their files."""

from pathlib import Path

from tools.reference.markdown import page

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
_PURPOSE = "This page lists the design decisions, each with its reasons and alternatives."


def decisions_page() -> str:
    """The text of docs/decisions/index.md."""
    paths = sorted(FOLDER.glob("[0-9]*.md"))
    # Addresses stand below the list: title and address together are longer than a line may be.
    addresses = [f"[{number}]: {path.name}" for number, path in enumerate(paths, 1)]
    entries = [f"{number}. [{_title(path)}][{number}]" for number, path in enumerate(paths, 1)]
    return page("Decisions", [_PURPOSE, "\n".join(entries), "\n".join(addresses)])


def _title(path: Path) -> str:
    return path.read_text().partition("\n")[0].partition(". ")[2]
