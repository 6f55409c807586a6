"""What the configuration has a word for, but this version does not carry out.

Refused instead of ignored: no option is without effect.
"""

from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def not_available(neutral: object, *, written: str) -> Callable[[Value], Value]:
    """A check that lets nothing but the neutral value pass; `written` is how the file has it."""

    def check(value: Value) -> Value:
        if value != neutral:
            raise ValueError(f"not available in this version; leave it out, or set it to {written}")
        return value

    return check
