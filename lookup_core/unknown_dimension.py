"""The refusal of a dimension that is not configured, in the same words on every way in.

Looks nothing up; who holds the dimensions does.
"""

from collections.abc import Iterable

from lookup_core.errors import ErrorCode, InvalidRequest

_MOST_CHARACTERS_TOLD = 100  # of a name that may be of any length


def unknown_dimension(
    name: str, configured: Iterable[str], *, where: str = "configured"
) -> InvalidRequest:
    """The error for a name that is none of those configured; it lists them all."""
    there_are = ", ".join(sorted(configured)) or "none"
    detail = f"no dimension {name[:_MOST_CHARACTERS_TOLD]!a}; {where}: {there_are}"
    return InvalidRequest(ErrorCode.UNKNOWN_DIMENSION, detail)
