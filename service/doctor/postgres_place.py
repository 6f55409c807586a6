"""A database that dimensions have in common: its address, for people, and who uses it for what.

Opens no connection; the address is never shown with its password.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lookup_core.settings import CacheMode
from service.adapter_settings import postgres_settings
from service.backends.postgres_settings import PostgresSettings
from service.config.dimension import DimensionConfig
from service.config.source import PostgresSource

_OF_LOADING = 5  # a whole table: the session with the snapshot, and four readers
_OF_LISTENING = 1
_USER = re.compile(r"\w+://([^:@/?#]+)(?::[^@/?#]*)?@", re.ASCII)
_DATABASE = re.compile(r"/([^/?#@]*)(?:\?[^@]*)?$")


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """The dimensions whose tables are reached by one DSN, and how the first of them is."""

    settings: PostgresSettings
    dimensions: Mapping[str, DimensionConfig] = field(repr=False)

    @property
    def address(self) -> str:
        """Which database it is, without a password, even one that is written in a wrong place."""
        hosts = self.settings.address
        if not hosts:
            return f"the database of {', '.join(self.dimensions)}"
        user = _USER.match(self.settings.dsn)
        database = _DATABASE.search(self.settings.dsn.partition("://")[2])
        place = f"{hosts}/{database[1]}" if database else hosts
        return f"{user[1]}@{place}" if user else place

    @property
    def is_listened_to(self) -> bool:
        """Whether any dimension hears of its changes by notifications."""
        return any(each.refresh.listen is not None for each in self.dimensions.values())

    @property
    def connections(self) -> int:
        """How many one executor's sidecar opens at most."""
        return sum(map(connections_of, self.dimensions.values()))


def connections_of(config: DimensionConfig) -> int:
    """How many connections one dimension opens at most."""
    loading = _OF_LOADING if config.cache.mode is CacheMode.FULL else 0
    listening = _OF_LISTENING if config.refresh.listen is not None else 0
    return config.batch.max_in_flight + loading + listening


def postgres_places(dimensions: Mapping[str, DimensionConfig]) -> list[PostgresPlace]:
    """One for each distinct address, in the order of the configuration; raises OSError."""
    settings: dict[tuple[str, bool], PostgresSettings] = {}
    members: dict[tuple[str, bool], dict[str, DimensionConfig]] = {}
    for name, config in dimensions.items():
        if isinstance(config.source, PostgresSource):
            of_one = postgres_settings(config, config.source)
            place = (of_one.dsn, of_one.pgbouncer)
            settings.setdefault(place, of_one)
            members.setdefault(place, {})[name] = config
    return [PostgresPlace(settings[place], members[place]) for place in settings]
