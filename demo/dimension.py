"""The four dimensions of the demonstration: their tables, and how the flights ask them.

Names and types only; `postgres` makes the tables, `stream` the lookups.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dimension:
    """One table, its key, and what a flight wants of it."""

    name: str
    types: dict[str, str]  # {column: type in SQL}, in the order of the file
    on: dict[str, str]  # {column of the flight: column of the key}
    columns: tuple[str, ...]  # what is added to a flight
    prefix: str  # of the added columns, which would clash otherwise

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key's columns."""
        return tuple(self.on.values())

    @property
    def status_column(self) -> str:
        """The added column that says how the lookup ended."""
        return f"{self.prefix}lookup"


PLANES = Dimension(
    name="planes",
    types={
        "tailnum": "text",
        "year": "integer",
        "type": "text",
        "manufacturer": "text",
        "model": "text",
        "engines": "integer",
        "seats": "integer",
        "speed": "integer",
        "engine": "text",
    },
    on={"tailnum": "tailnum"},
    columns=("year", "type", "manufacturer", "model", "engines", "seats", "engine"),
    prefix="plane_",
)
AIRPORTS = Dimension(
    name="airports",
    types={
        "faa": "text",
        "name": "text",
        "lat": "double precision",
        "lon": "double precision",
        "alt": "integer",
        "tz": "integer",
        "dst": "text",
        "tzone": "text",
    },
    on={"dest": "faa"},
    columns=("name", "lat", "lon", "alt", "tzone"),
    prefix="dest_",
)
AIRLINES = Dimension(
    name="airlines",
    types={"carrier": "text", "name": "text"},
    on={"carrier": "carrier"},
    columns=("name",),
    prefix="airline_",
)
WEATHER = Dimension(
    name="weather",
    types={
        "origin": "text",
        "year": "integer",
        "month": "integer",
        "day": "integer",
        "hour": "integer",
        "temp": "double precision",
        "dewp": "double precision",
        "humid": "double precision",
        "wind_dir": "integer",
        "wind_speed": "double precision",
        "wind_gust": "double precision",
        "precip": "double precision",
        "pressure": "double precision",
        "visib": "double precision",
        "time_hour": "timestamp with time zone",
    },
    on={"origin": "origin", "time_hour": "time_hour"},
    columns=("temp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"),
    prefix="weather_",
)
DIMENSIONS = (PLANES, AIRPORTS, AIRLINES, WEATHER)
FOLLOWED = (PLANES, AIRPORTS)  # those whose changes a live run follows
