"""Which keys of a request may be asked, and the answers to those that may not.

A NULL matches nothing, and a key that its type cannot hold would fail a query for all others.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lookup_core.answer import Answer, rowless_answer
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.outcome import Outcome


def askable_keys(keys: TypedKeys) -> npt.NDArray[np.int32]:
    """The positions of the keys that may be asked."""
    is_askable = np.ones(keys.size, np.bool_)
    is_askable[keys.nulls] = False
    is_askable[list(keys.faults)] = False
    return np.flatnonzero(is_askable).astype(np.int32)


def unaskable_answers(keys: TypedKeys) -> Iterator[Answer]:
    """The answers to all others: NULLs are missing, faulty keys are errors."""
    if len(keys.nulls):
        yield rowless_answer(keys.nulls, Outcome.MISSING)
    if keys.faults:
        positions = np.array(list(keys.faults), np.int32)
        yield replace(rowless_answer(positions, Outcome.ERROR), errors=dict(keys.faults))
