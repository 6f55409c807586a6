"""How long to wait before a store that could not be described is asked again.

A store that is away costs nothing to ask and is wanted back at once; a table that is not fit for
lookups, or a login that is refused, is mended by people.
"""

from lookup_core.errors import ErrorCode

_FIRST_S = 0.1
_LONGEST_AWAY_S = 0.5
_LONGEST_UNFIT_S = 30.0
_AWAY = frozenset({ErrorCode.UPSTREAM_UNAVAILABLE, ErrorCode.CONNECTION_LOST, ErrorCode.TIMEOUT})


class RecheckPace:
    """Pauses that double with each failure of the same kind, from 0.1 s on."""

    def __init__(self) -> None:
        self._longest_s = _LONGEST_AWAY_S
        self._next_s = _FIRST_S

    def pause_s(self, code: ErrorCode, *, jitter: float) -> float:
        """The pause after a failure; `jitter` in [0, 1) spreads it over its upper half."""
        longest_s = _LONGEST_AWAY_S if code in _AWAY else _LONGEST_UNFIT_S
        if longest_s != self._longest_s:
            self._longest_s, self._next_s = longest_s, _FIRST_S
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, longest_s)
        return pause_s * (0.5 + jitter / 2)

    def on_success(self) -> None:
        """The next failure is a first one again."""
        self._next_s = _FIRST_S
