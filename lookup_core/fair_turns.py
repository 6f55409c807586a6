"""Fair turns: deficit round robin over names that share something."""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class FairTurns(Generic[Name]):
    """Names in the order of their turns, each with what is left of its turn."""

    def __init__(self) -> None:
        self._left: dict[Name, int] = {}  # the name whose turn it is comes first

    def __len__(self) -> int:
        return len(self._left)

    def __contains__(self, name: Name) -> bool:
        return name in self._left

    @property
    def current(self) -> Name:
        """The name whose turn it is; one must be here."""
        return next(iter(self._left))

    def enter(self, name: Name) -> None:
        """Add a name behind all others; a no-op if it is here."""
        self._left.setdefault(name, 0)

    def enter_first(self, names: Iterable[Name]) -> None:
        """Add names, in this order, before all others; each begins a new turn."""
        self._left = {**dict.fromkeys(names, 0), **self._left}

    def leave(self, name: Name) -> None:
        """Remove a name, and the rest of its turn; a no-op if it is not here."""
        self._left.pop(name, None)

    def allowance(self, turn: int) -> int:
        """What the current name may spend: the rest of its turn, or a new one of this size."""
        name = self.current
        self._left[name] = self._left[name] or turn
        return self._left[name]

    def spend(self, count: int) -> None:
        """The current name spends this; without a rest its turn ends, and others come first."""
        name = self.current
        left = self._left[name] = max(self._left[name] - count, 0)
        if not left:
            self._left[name] = self._left.pop(name)
