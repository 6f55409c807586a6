"""Refreshing that fits the rest of its dimension: its source, and what is kept of it.

What contradicts itself within `refresh` is found there.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from lookup_core.settings import CacheMode
from service.config.fault_lines import BELOW
from service.config.refresh import Refresh
from service.config.source import PostgresSource


def fitting_refresh(refresh: Refresh, info: ValidationInfo) -> Refresh:
    """The same; raises PydanticCustomError, naming what has no effect or cannot work."""
    feed = refresh.feed
    if feed is not None:
        _check_feed(feed, info.data)
    mode = _mode(info.data)
    if refresh.reload is not None and mode is not CacheMode.FULL:
        raise _fault("reload", "only a table that is held whole is loaded anew: cache.mode: full")
    return refresh


def _check_feed(feed: str, data: Mapping[str, Any]) -> None:
    if _mode(data) is CacheMode.NONE:
        raise _fault(feed, "has no effect with cache.mode: none, which keeps nothing")
    source = data.get("source")
    if source is None:
        return  # faulty itself
    if not isinstance(source, PostgresSource):
        raise _fault(feed, "tells of a table in PostgreSQL; the source is a file")
    if feed == "listen" and source.pgbouncer:
        detail = "notifications are lost behind a PgBouncer that pools transactions; "
        raise _fault(feed, f"{detail}let the source's address be the server's own")


def _mode(data: Mapping[str, Any]) -> CacheMode:
    # A cache that is faulty itself is no reason for a second fault.
    return data["cache"].mode if "cache" in data else CacheMode.FULL


def _fault(key: str, text: str) -> PydanticCustomError:
    return PydanticCustomError("no_effect", "{text}", {"text": text, BELOW: (key,)})


FittingRefresh = Annotated[Refresh, AfterValidator(fitting_refresh)]
