"""Which of many numbers are equal, by hashing all of them at once.

Arrow's `dictionary_encode` does the same for values of any type, one by one; for ten thousand
numbers that are mostly distinct this takes a third of its time, for a few of them it takes more.

Multiplicative hashing as in Knuth, TAOCP vol. 3, 6.4.
"""

import numpy as np
import numpy.typing as npt

from lookup_core.keys.canonical_keys import GOLDEN_GAMMA, MIXERS

Numbers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

_GOLDEN = np.uint64(GOLDEN_GAMMA)  # 2**64 over the golden ratio, odd
_NEXT = np.uint64(MIXERS[0])  # another odd factor for those that collided


def first_equal_rows(numbers: Numbers) -> Rows:
    """For each of n numbers the first row with the same one."""
    first = _hashed(numbers, _GOLDEN)
    factor = _GOLDEN
    rest = np.flatnonzero(numbers.take(first) != numbers)
    while rest.size:  # all rows of a number are among them, or none
        with np.errstate(over="ignore"):
            factor *= _NEXT
        values = numbers.take(rest)
        found = _hashed(values, factor)
        is_equal = values.take(found) == values
        first[rest[is_equal]] = rest.take(found[is_equal])
        rest = rest[~is_equal]
    return first


def first_rows(codes: Rows, count: int) -> Rows:
    """For each of the codes below `count` the first row with it; anything for those of no row."""
    first = np.empty(count, np.intp)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # the last to be written is the first row
    return first


def _hashed(numbers: Numbers, factor: np.uint64) -> Rows:
    """For each number the first row with the same hash, half of which stay without a number."""
    bits = (2 * len(numbers)).bit_length()
    places = ((numbers.view(np.uint64) * factor) >> np.uint64(64 - bits)).view(np.int64)
    return first_rows(places, 1 << bits).take(places)
