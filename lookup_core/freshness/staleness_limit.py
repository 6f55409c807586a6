"""How far a dimension's rows may lag its table, as its settings have it.

A promise only; how far they do lag is measured elsewhere.
"""

import math

from lookup_core.settings import CacheMode, CacheSettings, DimensionSettings, ReloadSettings

_DAY_S = 86_400.0


def staleness_limit_s(settings: DimensionSettings, *, is_followed: bool) -> float | None:
    """Seconds; None where nothing is held, or a whole table is neither followed nor reloaded.

    What is loaded every so often is older by the time of a load than this says.
    """
    cache = settings.cache
    if cache.mode is CacheMode.NONE:
        return None
    if is_followed:
        feed = settings.feed
        return feed.max_silence_s if feed.max_staleness_s is None else feed.max_staleness_s
    if cache.mode is CacheMode.FULL:
        return _between_loads_s(settings.full.reload)
    return served_for_s(cache)


def served_for_s(cache: CacheSettings) -> float:
    """How old a row may be that is still an answer; infinite where rows do not expire.

    What is older may be in the cache for long, until its room is needed, and is of no account.
    """
    if cache.mode is CacheMode.FULL:
        return math.inf
    return cache.ttl_s + max(cache.stale_while_revalidate_s, cache.stale_if_error_s)


def _between_loads_s(reload: ReloadSettings) -> float | None:
    return reload.every_s if reload.at_s is None else _DAY_S
