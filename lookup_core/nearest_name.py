"""The hint that ends the search for a misspelt name: of a column, a key, a dimension.

Only the words; what a wrong name leads to is decided where it is found.
"""

from collections.abc import Sequence
from difflib import get_close_matches

_MOST_NAMES_LISTED = 20  # a table of 500 columns must not make an error of 500 names


def nearest_name(name: str, offered: Sequence[str]) -> str:
    """A clause to append to an error: the nearest of the names offered, else what there is."""
    lowered = {candidate.lower(): candidate for candidate in offered}
    close = get_close_matches(name.lower(), list(lowered), n=1)
    if close:
        return f"; did you mean {lowered[close[0]]}?"
    if not offered:
        return ""
    more = ", …" if len(offered) > _MOST_NAMES_LISTED else ""
    return f"; there is {', '.join(offered[:_MOST_NAMES_LISTED])}{more}"
