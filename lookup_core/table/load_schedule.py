"""When a table that is held whole is loaded the next time.

A time only: who waits for it has the clocks.
"""

from lookup_core.settings import ReloadSettings

_DAY_S = 86_400.0


def next_load_at(settings: ReloadSettings, *, now: float, wall_s: float) -> float | None:
    """When to load again, after a load that ended now; None: not by itself.

    `now` and what is returned are monotonic seconds, `wall_s` is now as Unix time. Leap seconds
    and clocks that are set meanwhile shift the time of day by as much.
    """
    if settings.every_s is not None:
        return now + settings.every_s
    if settings.at_s is None:
        return None
    return now + ((settings.at_s - wall_s) % _DAY_S or _DAY_S)
