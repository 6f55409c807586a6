"""Readers of caches without one of their checks, which the tests of shared reads must find."""

import inspect
from collections.abc import Mapping
from types import ModuleType

from lookup_core.cache import cache_view
from lookup_core.cache.cache_view import CacheReader

_HASHES = "is_own = gathered.tags == hashes"
_KEYS = "is_own &= own.to_numpy(zero_copy_only=False)"
_ADDRESSES = "is_own &= self.table.addresses_of(slots) == addresses"
_ALL = "is_own = np.ones(len(positions), np.bool_)"

WITHOUT_HASHES: Mapping[str, str] = {_HASHES: _ALL}  # nor of keys, where their hashes are exact
WITHOUT_KEYS: Mapping[str, str] = {_KEYS: "pass"}
WITHOUT_ADDRESSES: Mapping[str, str] = {_ADDRESSES: "pass"}
WITHOUT_ANY: Mapping[str, str] = {**WITHOUT_HASHES, **WITHOUT_KEYS, **WITHOUT_ADDRESSES}


def broken_reader(lines: Mapping[str, str]) -> type[CacheReader]:
    """The class of readers with other lines in these places."""
    source = inspect.getsource(cache_view)
    for line, other in lines.items():
        assert source.count(line) == 1, f"{line!r} has changed"
        source = source.replace(line, other)
    module = ModuleType(cache_view.__name__)
    exec(compile(source, cache_view.__file__, "exec"), module.__dict__)  # noqa: S102  # our own source
    found: type[CacheReader] = module.CacheReader
    return found
